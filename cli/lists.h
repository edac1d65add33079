/* Lists on the command line; a flag that is repeated adds to its list. */
#ifndef PENSTOCK_CLI_LISTS_H
#define PENSTOCK_CLI_LISTS_H

struct int_list {
    long *items; /* (n) */
    int n;
};

struct word_list {
    char **items; /* (n) */
    int n;
};

void int_list_fini(struct int_list *l);
void word_list_fini(struct word_list *l);

/* Adds "N", "FIRST-LAST", "FIRST-LAST+STEP" or "FIRST-LAST*FACTOR", or several of these separated by commas, all
 * within [low, high]; else a line that names the flag, -EINVAL. -ENOMEM after a line. */
int int_list_add(struct int_list *l, const char *flag, const char *value, long low,
                 long high);

/* Adds the words between separators, none of them empty. -EINVAL, -ENOMEM after a line. */
int word_list_add(struct word_list *l, const char *flag, const char *value,
                  char separator);

#endif
