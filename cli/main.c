/* penstock(1): finds the sub-command. */
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/error.h"
#include "cli/files.h"
#include "runtime/penstock.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"run", cmd_run, "generate text with a model cut into stages"},
    {"score", cmd_score, "log-likelihood and perplexity of a text"},
    {"bench", cmd_bench, "tokens per second, over many sizes and set-ups"},
    {"train", cmd_train, "train a model, through any schedule"},
    {"grad", cmd_grad, "loss and gradients of given sequences, through any schedule"},
    {"tokenize", cmd_tokenize, "text to token ids and back"},
    {"topo", cmd_topo, "the machine, its lanes and the links between them"},
    {"schedule", cmd_schedule, "make, check, simulate and draw schedules"},
};

static void usage(FILE *f)
{
    fprintf(f, "usage: penstock COMMAND [flags]\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].what);
    fprintf(f,
            "\npenstock COMMAND --help tells a command's flags; penstock --version the "
            "version.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    keep_streams();
    if (!name) {
        usage(stderr);
        return 1;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        usage(stdout);
        return close_stdout() != 0;
    }
    if (!strcmp(name, "--version")) {
        printf("penstock %s\n", penstock_version());
        return close_stdout() != 0;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (!strcmp(name, commands[i].name)) {
            static char title[32];
            snprintf(title, sizeof(title), "penstock %s", name);
            argv[1] = title;
            return commands[i].run(argc - 1, argv + 1);
        }
    cli_error("no command %s: see penstock --help", name);
    return 1;
}
