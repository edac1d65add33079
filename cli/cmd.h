/* The sub-commands of penstock(1). Each returns the exit status: 0, 1 on an error, 2 on wrong usage. */
#ifndef PENSTOCK_CMD_H
#define PENSTOCK_CMD_H

int cmd_bench(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_score(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_grad(int argc, char **argv);
int cmd_topo(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_schedule(int argc, char **argv);

#endif
