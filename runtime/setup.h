/* What runs need before their first op: memory of the lanes, links, weights. */
#ifndef PENSTOCK_SETUP_H
#define PENSTOCK_SETUP_H

#include "runtime/engine.h"
#include "runtime/link.h"
#include "stages/stage.h"

/* A memory that cannot hold what its lanes need together. */
struct setup_shortage {
    const char *name;  /* of a lane in it, or "host memory"; as long as the lanes */
    size_t need, have; /* bytes */
};

/* Whether every lane l can have bytes[l]. -ENOMEM, without a line, and *s if not. */
int setup_fits(struct setup_shortage *s, const struct lane_set *lanes,
               const size_t *bytes);

/* Gives every lane an arena of bytes[lane]. Before anything is taken, one line for what does not fit, by how
 * much, and the advice: what to use instead. */
int setup_memory(struct lane_set *lanes, struct place *place, const size_t *bytes,
                 const char *advice);

/* Makes a link on the receiving lane's thread, so that its staging memory is near. */
int setup_link(struct link **out, struct place *place, enum link_kind kind,
               struct lane *from, struct lane *to, size_t bytes, bool backward);

/* Binds every lane's thread and reads its stages' weights, all lanes at once. progress may be NULL. */
int setup_load(struct engine *e, struct place *place, struct stage **stages,
               const struct model *model,
               void (*progress)(void *user, const char *what, double done), void *user);

#endif
