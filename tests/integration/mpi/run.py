#!/usr/bin/env python3
"""Runs one case of the MPI preload's tests: run.py --mpi openmpi --preload LIB --programs DIR CASE [ARGUMENT].

Exit status 0: passed, 77: skipped (the reason is printed), else failed.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

NO_PRELOAD = ""
BLOCKING = ["MPI_Allreduce", "MPI_Reduce_scatter", "MPI_Reduce_scatter_block", "MPI_Allgather", "MPI_Bcast"]


def skip(reason):
    print("SKIPPED: " + reason)
    sys.exit(77)


def require(condition, message):
    if not condition:
        sys.exit("FAILED: " + message)


class Runner:
    def __init__(self, options):
        self.mpi, self.preload, self.programs = options.mpi, options.preload, options.programs
        self.runtime = options.runtime + ":" if options.runtime else ""
        self.folder = tempfile.mkdtemp(prefix="tamaki_mpi_")
        self.stats_path = os.path.join(self.folder, "stats")
        self.launcher = shutil.which("mpirun." + self.mpi)
        if self.launcher is None:
            skip("mpirun." + self.mpi + " is not installed")

    def program(self, name):
        path = os.path.join(self.programs, name)
        if not os.path.exists(path):
            skip(name + " was not built: no compiler wrapper for it")
        return path

    def command(self, ranks, program, environment, preload):
        settings = {"TAMAKI_MPI_STATS": self.stats_path, "TAMAKI_MPI_SETUP_CALLS": "0"}
        settings.update(environment)
        if preload:
            settings["LD_PRELOAD"] = self.runtime + preload
        return ["-n", str(ranks), "env"] + [f"{k}={v}" for k, v in settings.items()] + program

    def run(self, ranks, *program, environment=None, preload=None, launcher=(), fails=False, seconds=240, groups=None):
        """Runs `program` on `ranks` ranks and returns its output. `groups`: (ranks, environment) of parts of the job."""
        preload = self.preload if preload is None else preload
        for path in glob.glob(self.stats_path + "*"):
            os.unlink(path)
        line = [self.launcher]
        if self.mpi == "openmpi":
            line += ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                     "--mca", "mpi_yield_when_idle", "1"]
        line += list(launcher)
        parts = groups if groups is not None else [(ranks, environment or {})]
        for i, (count, settings) in enumerate(parts):
            line += ([":"] if i else []) + self.command(count, list(program), settings, preload)
        print("+ " + " ".join(line), flush=True)
        ended = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
                               cwd=self.folder, errors="replace")
        print(ended.stdout, flush=True)
        if not fails:
            require(ended.returncode == 0, f"exit status {ended.returncode}")
        else:
            require(ended.returncode != 0, "ended with status 0, an error was expected")
        return ended.stdout

    def stats(self, rank):
        with open(f"{self.stats_path}.{rank}", encoding="utf-8") as file:
            return json.load(file)


def calls(stats, **wanted):
    return sum(r["calls"] for r in stats["records"] if all(r.get(k) == v for k, v in wanted.items()))


def reasons(stats):
    return {r["reason"] for r in stats["records"] if r["path"] == "mpi"}


def validate(runner, ranks):
    """Everything, on so many ranks; the statistics prove which way the calls went."""
    ranks = int(ranks)
    parts = "reductions movement derived passed errors communicators intercommunicator progress".split()
    output = runner.run(ranks, runner.program("validate"), *parts)
    require(f"validated on {ranks} ranks" in output, "not validated")
    for rank in range(ranks):
        stats = runner.stats(rank)
        require(stats["state"] == "finalized" and stats["ranks"] == ranks and stats["rank"] == rank, "wrong identity")
        require("could not be set up" not in reasons(stats), "not set up")
        for call in BLOCKING:
            ours = calls(stats, call=call, path="tamaki")
            require((ours > 0) == (ranks > 1), f"{ours} accelerated {call} on {ranks} ranks")
        for reason in ["data type", "nonblocking", "one rank", "zero bytes"]:
            require(reason in reasons(stats), f"nothing passed for: {reason}")
        if ranks > 1:
            for reason in ["operation", "operation is not defined for the data type", "intercommunicator",
                           "arguments look wrong"]:
                require(reason in reasons(stats), f"nothing passed for: {reason}")
            names = {r["communicator"] for r in stats["records"] if r["path"] == "tamaki"}
            require(len(names) >= 2 and "MPI_COMM_WORLD" in names, f"accelerated on {names} only")
        # One way for one kind of call: on MPI_COMM_WORLD sums of doubles never go to MPI.
        timed = [r for r in stats["records"] if r["path"] == "tamaki"]
        require(all(r["algorithm"] not in ("", "unknown") and r["seconds"] > 0 and r["bytes"] > 0 for r in timed),
                "records without algorithm, time or bytes")


def plain(runner):
    """The validator is right: the distribution's MPI passes it, but for what is known to be wrong there."""
    output = runner.run(2, runner.program("validate"), "--skip-known", "few_reductions", "movement", "derived",
                        "passed", "errors", "intercommunicator", "progress", preload=NO_PRELOAD)
    require("validated on 2 ranks" in output, "not validated")
    require(not glob.glob(runner.stats_path + "*"), "statistics without the preload")


def thresholds(runner):
    environment = {"TAMAKI_MPI_MIN_BYTES": "1K", "TAMAKI_MPI_MAX_BYTES": "8K",
                   "TAMAKI_ALLREDUCE": "ring:0-3K,rabenseifner:3K-"}
    output = runner.run(2, runner.program("validate"), "--skip-known", "few_reductions", environment=environment)
    require("validated on 2 ranks" in output, "not validated")
    stats = runner.stats(0)
    ours = [r for r in stats["records"] if r["path"] == "tamaki" and r["call"] == "MPI_Allreduce"]
    require({r["algorithm"] for r in ours} == {"ring", "rabenseifner"}, f"algorithms {[r['algorithm'] for r in ours]}")
    require(all(1024 <= r["bytes"] / r["calls"] <= 8192 for r in ours), "sizes beyond the thresholds")
    require({"smaller than TAMAKI_MPI_MIN_BYTES", "larger than TAMAKI_MPI_MAX_BYTES"} <= reasons(stats), "no reasons")
    # Ranks that were given different thresholds go by rank 0's.
    output = runner.run(0, runner.program("validate"), "--skip-known", "few_reductions",
                        groups=[(1, {"TAMAKI_MPI_MIN_BYTES": "2K"}), (1, {"TAMAKI_MPI_MIN_BYTES": "8"})])
    require("validated on 2 ranks" in output, "not validated with different thresholds")


def unavailable(runner):
    """Where Tamaki cannot be set up: one warning, and every call goes to MPI on every rank."""
    program = [runner.program("validate"), "--skip-known", "derived", "passed"]
    cases = {
        "no transport": [(3, {"TAMAKI_TRANSPORTS": "inproc"})],
        "an option is wrong on one rank": [(1, {}), (1, {"TAMAKI_LANES": "many"})],
        "no transport on one rank": [(1, {}), (1, {"TAMAKI_TRANSPORTS": "inproc"})],
        "an algorithm that is not there": [(2, {"TAMAKI_ALLREDUCE": "toru:0-"})],
    }
    for name, groups in cases.items():
        print("--- " + name)
        ranks = sum(count for count, _ in groups)
        output = runner.run(ranks, *program, groups=groups)
        require(f"validated on {ranks} ranks" in output, name + ": not validated")
        warnings = [line for line in output.splitlines() if "could not be set up" in line]
        require(len(warnings) == 1, f"{name}: {len(warnings)} warnings")
        for rank in range(ranks):
            if "option" in name and rank == 1:
                continue  # its options are void, TAMAKI_MPI_STATS among them
            require(calls(runner.stats(rank), path="tamaki") == 0, name + ": something was accelerated")
            require("could not be set up" in reasons(runner.stats(rank)), name + ": no reason given")
        if "algorithm" in name:
            require("toru" in warnings[0] and "ring" in warnings[0], "the warning does not name the algorithms there are")
    print("--- an algorithm that cannot serve these ranks")
    output = runner.run(2, runner.program("calls"), environment={"TAMAKI_ALLREDUCE": "torus:0-"})
    require("calls validated" in output, "not validated")
    require(output.count("go to MPI") == 2, "not one warning a rank")
    for rank in range(2):
        stats = runner.stats(rank)
        require(calls(stats, call="MPI_Allreduce", path="tamaki") == 0, "served by an algorithm that was not asked for")
        require("the rule's algorithm cannot serve it" in reasons(stats), "no reason given")


def early(runner):
    runner.run(2, runner.program("validate"), "lifecycle", environment={"TAMAKI_MPI_SETUP_CALLS": "10"})
    stats = runner.stats(0)
    require(calls(stats, path="tamaki") == 0 and "one of the first calls" in reasons(stats), "set up too early")


def part(runner, name):
    ranks, environment = (3 if name == "lifecycle" else 2), {}
    if name == "lifecycle" and runner.runtime:  # memory that the sanitizer keeps from being used again does not count
        environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=16"
    output = runner.run(ranks, runner.program("validate"), name, environment=environment)
    require(f"validated on {ranks} ranks" in output, "not validated")
    if "is not provided" in output:
        skip("this MPI has no MPI_THREAD_MULTIPLE")
    require(calls(runner.stats(1), path="tamaki") > 0, "nothing was accelerated")


def progress(runner):
    """Over a transport of MPI's that only moves while its rank is inside MPI."""
    launcher = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"] if runner.mpi == "openmpi" else []
    for ranks in (2, 4):
        output = runner.run(ranks, runner.program("validate"), "progress", "progress", launcher=launcher, seconds=60)
        require(f"validated on {ranks} ranks" in output, "not validated")
        require(calls(runner.stats(0), path="tamaki") > 0, "nothing was accelerated")


def killed(runner):
    launcher = ["-disable-auto-cleanup"] if runner.mpi == "mpich" else []
    output = runner.run(3, runner.program("validate"), "killed", launcher=launcher, fails=True, seconds=60)
    if runner.mpi == "mpich":  # either launcher may end the others before they can say anything, Open MPI's mostly does
        told = re.findall(r"rank ([01]) was told in round 1000: Tamaki: rank 2 .*lost", output)
        require(told, "no error named rank 2")
        require(any(f"rank {rank} is told again" in output for rank in told), "the communicator went on")


def late(runner):
    output = runner.run(2, runner.program("validate"), "late")
    require("validated on 2 ranks" in output, "not validated")
    output = runner.run(2, runner.program("validate"), "late", environment={"TAMAKI_TIMEOUT_MS": "1000"}, fails=True)
    require(re.search(r"deadline 1000 ms.*rank 0", output), "no error named the late rank")


def fortran(runner, way):
    expected = {"MPI_Allreduce": 8, "MPI_Allgather": 2, "MPI_Reduce_scatter": 1, "MPI_Reduce_scatter_block": 1,
                "MPI_Iallreduce": 1}
    for ranks in (1, 2, 3):
        output = runner.run(ranks, runner.program("fortran_" + way))
        require(f"fortran validated on {ranks} ranks" in output, "not validated")
        stats = runner.stats(0)
        for call, count in expected.items():  # each once: neither missed nor counted twice
            seen = calls(stats, call=call)
            require(seen == count, f"{seen} calls of {call}, not {count}")
        require(calls(stats, call="MPI_Bcast") == ranks + 2, "calls of MPI_Bcast")
        require(ranks == 1 or calls(stats, call="MPI_Allreduce", path="tamaki") >= 7, "not accelerated")


def tools(runner):
    for name, first, seen in [("tool_next.so", False, 5), ("tool_next.so", True, 15), ("tool_pmpi.so", False, 5),
                              ("tool_pmpi.so", True, 15)]:
        tool = runner.program(name)
        preload = f"{tool}:{runner.preload}" if first else f"{runner.preload}:{tool}"
        output = runner.run(2, runner.program("calls"), preload=preload)
        require("calls validated" in output, "not validated")
        require(output.count(f"saw {seen}\n") == 2, f"the tool saw another number of calls than {seen}")
        ours = calls(runner.stats(0), path="tamaki") if glob.glob(runner.stats_path + ".0") else 0
        require(ours == (0 if first and "pmpi" in name else 10), f"{ours} accelerated calls")


def hosts(runner):
    """Programs of other kinds: a module with a private MPI, the other MPI, none at all, a spawned world, no finalize."""
    output = runner.run(2, runner.program("loader"), runner.program("module.so"))
    require("calls validated" in output and calls(runner.stats(1), path="tamaki") == 10, "module")
    other = runner.preload.replace("openmpi", "#").replace("mpich", "openmpi").replace("#", "mpich")
    if os.path.exists(other):
        output = runner.run(2, runner.program("calls"), preload=other)
        require("calls validated" in output and "is loaded into a program of" in output, "the preload for the other MPI")
    for program in (["/bin/sh", "-c", "echo fine | cat"], [runner.program("loader")]):
        environment = dict(os.environ, LD_PRELOAD=runner.runtime + runner.preload, TAMAKI_MPI_STATS=runner.stats_path)
        ended = subprocess.run(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        require("symbol" not in ended.stderr and "tamaki" not in ended.stderr, "a program without MPI: " + ended.stderr)
    runner.run(2, runner.program("validate"), "unfinalized", fails=runner.mpi == "openmpi")
    require(runner.stats(0)["state"] == "unfinalized" and calls(runner.stats(0), path="tamaki") > 0, "no finalize")
    if runner.mpi == "openmpi":  # MPICH's launcher here refuses to spawn, without the preload too
        output = runner.run(2, runner.program("spawn"))
        require("parent validated" in output and "child validated" in output, "spawned worlds")


def hpcc(runner):
    """HPC Challenge, a real application: its verdicts, residuals and error figures with and without the preload."""
    if runner.mpi != "openmpi":
        skip("Debian's hpcc is built for Open MPI")
    if shutil.which("hpcc") is None:
        skip("hpcc is not installed (package hpcc)")
    source = "/usr/share/doc/hpcc/examples/_hpccinf.txt"
    if not os.path.exists(source):
        skip(source + " is missing")
    with open(source, encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"^1000( +Ns)", r"300\1", text, flags=re.M)
    text = re.sub(r"^2( +Ps)", r"1\1", text, flags=re.M)
    with open(os.path.join(runner.folder, "hpccinf.txt"), "w", encoding="utf-8") as file:
        file.write(text)
    figures = []
    for preload in (NO_PRELOAD, None):
        output_file = os.path.join(runner.folder, "hpccoutf.txt")
        if os.path.exists(output_file):
            os.unlink(output_file)
        runner.run(2, "hpcc", preload=preload, seconds=600)
        with open(output_file, encoding="utf-8") as file:
            output = file.read()
        figures.append(re.findall(r"^(?:Success|\w*(?:Errors|ErrorsFraction|residual|maxErr))=.*$|^\|\|Ax-b\|\|.*$", output, flags=re.M))
        require("FAILED" not in output and "Success=1" in output, "hpcc does not call its results right")
    require(len(figures[0]) >= 7 and figures[0] == figures[1], f"figures differ: {figures}")
    require(calls(runner.stats(0), call="MPI_Allreduce", path="tamaki") > 100, "hardly anything was accelerated")
    print("the same with and without: " + "; ".join(figures[0]))


def twice(runner, ranks, expected, *program, seconds=240):
    """Runs a program without and with the preload; both must print the same line that begins with `expected`."""
    lines = []
    for preload in (NO_PRELOAD, None):
        output = runner.run(ranks, *program, preload=preload, seconds=seconds)
        absent = re.search(r"^no (?:large-count forms|sessions) in MPI.*", output, flags=re.M)
        if absent:
            skip(absent.group(0))
        lines.append(re.findall(rf"^{expected}.*", output, flags=re.M))
    require(len(lines[0]) == 1 and lines[0] == lines[1], f"without and with the preload differ: {lines}")


def large_count(runner, how=""):
    """MPI 4's forms with MPI_Count: served like the others, same results."""
    if how == "huge":  # two ranks with 2 GiB each, and what MPI itself needs
        with open("/proc/meminfo", encoding="utf-8") as file:
            available = int(re.search(r"MemAvailable: *(\d+)", file.read()).group(1)) >> 20
        if available < 9:
            skip(f"{available} GiB of memory are free, 9 are needed")
    for ranks in (2,) if how else (1, 2, 3):
        twice(runner, ranks, "large counts validated", runner.program("large_count"), *([how] if how else []))
        if ranks > 1:
            for call in ["MPI_Allreduce"] if how else BLOCKING:
                require(calls(runner.stats(1), call=call, path="tamaki") > 0, f"{call}_c was not accelerated")
        if not how:
            require(calls(runner.stats(0), call="MPI_Iallreduce", path="mpi") == 6, "MPI_Iallreduce_c was not counted")


def sessions(runner):
    """Communicators of MPI 4's sessions: MPI's as long as there is no MPI_Init, served beside it."""
    for ranks in (1, 2, 3):
        twice(runner, ranks, "sessions validated", runner.program("sessions"), "alone")
        require(not glob.glob(runner.stats_path + "*"), "something was accelerated or counted without MPI_Init")
        twice(runner, ranks, "sessions validated", runner.program("sessions"), "beside")
        if ranks > 1:
            names = {r["communicator"] for r in runner.stats(1)["records"] if r["path"] == "tamaki"}
            require(len(names) >= 2 and "MPI_COMM_WORLD" in names, f"accelerated on {names} only")


def killed_in_setup(runner):
    """A rank is killed at every step of the set-up that others wait for. Nobody hangs."""
    preload = runner.program("die.so") + ":" + runner.preload
    output = runner.run(3, runner.program("calls"), preload=preload)
    require("calls validated" in output, "not validated")
    points = []
    for rank, counts in re.findall(r"^rank (\d) saw (.*)$", output, flags=re.M):
        for name, count in re.findall(r"(\w+) (\d+)", counts):
            if rank != "2":  # it does what rank 1 does
                points += [(rank, f"{name} {n}") for n in range(1, int(count) + 1)]
    kinds = {point.split()[0] for _, point in points}
    require({"PMPI_Allgather", "memfd_create", "connect", "accept4"} <= kinds, f"the set-up makes only {kinds}")
    for rank, point in points:
        output = runner.run(3, runner.program("calls"), preload=preload, fails=True, seconds=20,
                            environment={"DIE_AT": point, "DIE_RANK": rank, "TAMAKI_TIMEOUT_MS": "3000"})
        require("calls validated" not in output, f"rank {rank} was not killed at {point}")


def scalapack(runner):
    """ScaLAPACK's own tests, a real application: what they try and what they find, with and without the preload."""
    programs = f"/usr/lib/{os.uname().machine}-linux-gnu/scalapack/{runner.mpi}-tests"
    if not os.path.isdir(programs):
        skip("ScaLAPACK's test programs are not installed (package scalapack-mpi-test)")
    # Two ranks, and the larger of the small matrices that the package's input files name.
    def shorten(name, *changes):
        with open("/usr/share/scalapack/" + name, encoding="utf-8") as file:
            text = file.read()
        for old, new in (*changes, (r"^4(\s+number of (?:problems sizes|process grids|blocking sizes))", r"2\1"),
                         (r"^1 2 1 4 2 3 8", "1 2"), (r"^1 2 4 1 3 2 1", "2 1")):
            text, changed = re.subn(old, new, text, flags=re.M)
            require(changed > 0, f"{name} is not what it was: no {old}")
        with open(os.path.join(runner.folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    shorten("LU.dat", (r"^4 10 17 13 23 31 57", "23 57"), (r"^4 12 13 13 23 31 50", "31 50"))
    shorten("QR.dat", (r"^2 5 13 15 13 26 30 15", "13 30"), (r"^2 7 8  10 17 20 30 35", "10 35"))
    for program in ("xdlu", "xdqr"):
        rows = []
        for preload in (NO_PRELOAD, None):
            output = runner.run(2, os.path.join(programs, program), preload=preload,
                                environment={"OPENBLAS_NUM_THREADS": "1"})
            # All but the times: "WALL M N NB ... LU Time, Sol Time, MFLOPS, CHECK".
            rows.append([re.sub(r"\s+\d*\.\d+", "", line) for line in output.splitlines()
                         if re.search(r"PASSED|FAILED|residual checks|tests skipped", line)])
            require(re.search(r" 0 tests completed and failed residual checks", output), f"{program} finds its results wrong")
        require(len(rows[0]) > 10 and rows[0] == rows[1], f"{program} differs: {rows}")
        for call in ("MPI_Allreduce", "MPI_Bcast"):
            require(calls(runner.stats(0), call=call, path="tamaki") >= 40, f"hardly any {call} was accelerated")
        print("the same with and without: " + "; ".join(row.strip() for row in rows[0][-4:]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mpi", required=True, choices=["openmpi", "mpich"])
    parser.add_argument("--preload", required=True)
    parser.add_argument("--runtime", default="", help="of a sanitizer: wants to be preloaded first")
    parser.add_argument("--programs", required=True)
    parser.add_argument("case")
    parser.add_argument("argument", nargs="?")
    options = parser.parse_args()
    runner = Runner(options)
    cases = [validate, plain, thresholds, unavailable, early, part, progress, killed, late, fortran, tools, hosts, hpcc, large_count, sessions,
             killed_in_setup, scalapack]
    case = {c.__name__: c for c in cases}[options.case]
    try:
        case(runner, *([options.argument] if options.argument else []))
    except subprocess.TimeoutExpired as expired:
        print((expired.stdout or b"").decode(errors="replace"))
        sys.exit(f"FAILED: no end after {expired.timeout} s")
    finally:
        shutil.rmtree(runner.folder, ignore_errors=True)
    print("PASSED")


if __name__ == "__main__":
    main()
