/* penstock topo: the machine, its lanes and the links between them. */
#include <getopt.h>
#include <stdio.h>

#include "cli/cmd.h"
#include "cli/options.h"

enum { OPT_SVG = OPT_OWN };

static const struct option flags[] = {
    {"devices", required_argument, NULL, OPT_DEVICES},
    {"svg", required_argument, NULL, OPT_SVG},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char usage_text[] =
    "usage: penstock topo [--devices LIST] [--svg FILE]\n\n"
    "Prints the machine as hwloc sees it, the lanes it offers, and the links between "
    "them\n"
    "with measured latency and bandwidth. With HWLOC_XMLFILE it shows that machine.\n\n"
    "      --devices LIST  lanes: cuda:0,cuda:1 or cuda:0/4 (slices) or cpu:0-3,cpu:4-7\n"
    "                      [every GPU, else two CPU lanes]\n"
    "      --svg FILE      draws it, too\n";

int cmd_topo(int argc, char **argv)
{
    const char *devices = NULL, *svg = NULL;
    int flag;

    while ((flag = next_flag(argc, argv, ":h", flags)) != -1) {
        if (flag == OPT_DEVICES) {
            devices = optarg;
        } else if (flag == OPT_SVG) {
            svg = optarg;
        } else if (flag == 'h') {
            fputs(usage_text, stdout);
            return close_stdout() != 0;
        } else {
            return 1;
        }
    }
    if (no_arguments(argc, argv))
        return 1;
    if (penstock_topo(stdout, svg, devices))
        return 1;
    return close_stdout() != 0;
}
