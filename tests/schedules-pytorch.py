"""Plans of penstock in PyTorch's pipelining and back; the two must agree on every op.

usage: schedules-pytorch.py PENSTOCK FOLDER
"""
import subprocess
import sys

import torch
from torch.distributed.pipelining import schedules as pp

penstock, folder = sys.argv[1:]


class Stage:
    """What a schedule asks of one of its stages before it runs."""

    def __init__(self, index, lane, lanes, stages):
        self.stage_index, self.group_rank = index, lane
        self.group_size, self.num_stages = lanes, stages
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.submod, self.has_backward, self.device = torch.nn.Identity(), True, "cpu"


def make(kind, lanes, chunks, micro_batches):
    stages = [Stage(lanes * c, 0, lanes, lanes * chunks) for c in range(chunks)]
    return kind(stages, micro_batches, loss_fn=lambda *_: None)


def show(*flags):
    command = [penstock, "schedule", "show", *flags, "--format", "csv"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rows(text):
    """The cells of each lane; what says nothing about the order of the work left out."""
    skipped = ("WAIT_", "UNSHARD", "RESHARD", "REDUCE_GRAD")
    cells = [[c for c in line.split(",") if c] for line in text.split()]
    return [[c for c in row if not any(s in c for s in skipped)] for row in cells]


def dump(schedule, comm):
    path = folder + "/dump.csv"
    schedule._dump_csv(path, format="compute_comms" if comm else "compute_only")
    with open(path, encoding="ascii") as f:
        return f.read(), path


def load_ours(name, lanes, chunks, micro_batches, comm):
    """PyTorch reads our plan, validates it, and writes what we wrote."""
    shape = [name, f"-p{lanes}", f"-m{micro_batches}"] + ["--comm"] * comm
    if name in ("interleaved", "looped-bfs"):
        shape.append(f"-v{chunks}")
    text, path = show(*shape), folder + "/ours.csv"
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    schedule = make(pp._PipelineScheduleRuntime, lanes, chunks, micro_batches)
    schedule._load_csv(path, format="compute_comms" if comm else "compute_only")
    assert rows(dump(schedule, comm)[0]) == rows(text), (shape, "differs")
    if comm and name != "dualpipev":  # PyTorch's dry run knows no pairs
        places = schedule.stage_index_to_group_rank
        pp._simulate_comms_compute(
            schedule.pipeline_order_with_comms, lambda s: places[s], lanes * chunks
        )


def load_theirs(kind, lanes, chunks, micro_batches, comm):
    """We read and check a plan of PyTorch, and write what it wrote."""
    text, path = dump(make(kind, lanes, chunks, micro_batches), comm)
    command = [penstock, "schedule", "check", path, f"-p{lanes}", f"-m{micro_batches}"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    what = (kind.__name__, lanes, chunks, micro_batches, comm)
    assert result.returncode == 0, (what, result.stderr)
    if not comm:  # ours come in an order of their own
        assert rows(show(path)) == rows(text), (what, "differs")


def same_plan(kind, name, lanes, chunks, micro_batches):
    """Both make a schedule of one definition: the plans are equal."""
    text, _ = dump(make(kind, lanes, chunks, micro_batches), False)
    ours = show(name, f"-p{lanes}", f"-m{micro_batches}", f"-v{chunks}")
    assert rows(ours) == rows(text), (name, lanes, micro_batches, "differs")


ONE = ["gpipe", "1f1b", "1f1b-eager", "zb-h1", "zb-h2"]
TWO = ["interleaved", "looped-bfs", "zb-v", "v-half", "dualpipev"]
THEIRS = [
    (pp.ScheduleInterleaved1F1B, 3),
    (pp.ScheduleLoopedBFS, 2),
    (pp.ScheduleInterleavedZeroBubble, 2),
    (pp.ScheduleZBVZeroBubble, 2),
    (pp.ScheduleDualPipeV, 2),
]
SAME = [
    (pp.ScheduleInterleaved1F1B, "interleaved", 3),
    (pp.ScheduleZBVZeroBubble, "zb-v", 2),
    (pp.ScheduleDualPipeV, "dualpipev", 2),
]
for p, m in ((2, 6), (3, 6), (4, 12), (8, 16)):
    for each, its_name, v in SAME:
        same_plan(each, its_name, p, v, m)
    for with_comm in (False, True):
        for each in ONE:
            load_ours(each, p, 1, m, with_comm)
        for each in TWO:
            load_ours(each, p, 2, m, with_comm)
        for each, v in THEIRS:
            load_theirs(each, p, v, m, with_comm)
