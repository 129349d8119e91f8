#!/usr/bin/env python3
"""Holds `tamaki simulate` against collectives that were measured on Fugaku.

    perf_tests/fugaku.py --tamaki build/release/bin/tamaki                     table
    perf_tests/fugaku.py --tamaki ... --markdown table.md --svg plot.svg
    perf_tests/fugaku.py --tamaki ... --fit                                    the constants anew

Each measured algorithm is timed as the algorithm of this library that sends the same messages, on the cluster file of
the software that was measured. What is left out has no counterpart here: bruck and linear of Fujitsu MPI (a rotation
of all data at the end; several network interfaces at once), the RING-VEC_* and BINE-VEC_* codes (they gather blocks
into one message a step), RECDOUB-L of several ports (each port in another order of dimensions), and all whose segment
size is not 0. The tree of Trinaryx is left out, too: its segments make it long to simulate.
"""
import argparse
import collections
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(ROOT, "tests", "data", "fugaku", "collectives_8_to_512_nodes.csv")
SHAPES = ("2x2x2", "4x4x4", "8x8x8")
FITTED = "8x8x8"

Pair = collections.namedtuple("Pair", "collective measured cluster algorithm lanes engines")
PAIRS = [
    Pair("allgather", "default-3dtorus", "fugaku", "torus", 1, 6),
    Pair("allreduce", "RECDOUB-L-UTOFU-0-1", "fugaku_bine", "recursive_doubling", 1, 6),
    Pair("allreduce", "RECDOUB-B_CONT-UTOFU-0-1", "fugaku_bine", "rabenseifner", 1, 6),
    Pair("allreduce", "BINE-B_CONT-UTOFU-0-1", "fugaku_bine", "swing", 1, 1),
    Pair("allreduce", "BINE-B_CONT-UTOFU-0-3", "fugaku_bine", "swing", 1, 3),
    Pair("allreduce", "BINE-B_CONT-UTOFU-0-6", "fugaku_bine", "swing", 1, 6),
    Pair("allreduce", "RING-B_CONT-UTOFU-0-6", "fugaku_bine", "torus", 1, 6),
    Pair("allreduce", "default-recursive_doubling", "fugaku_mpi", "recursive_doubling", 1, 6),
    Pair("allreduce", "default-ring", "fugaku_mpi", "ring", 1, 6),
    Pair("allgather", "default-ring", "fugaku_mpi", "ring", 1, 6),
    Pair("allgather", "default-recursive-doubling", "fugaku_mpi", "recursive_doubling", 1, 6),
    Pair("reduce_scatter", "default-ring", "fugaku_mpi", "ring", 1, 6),
    Pair("reduce_scatter", "default-recursive-halving", "fugaku_mpi", "recursive_halving", 1, 6),
]

Point = collections.namedtuple("Point", "pair shape bytes predicted measured")  # seconds


def load(path=DATA):
    """(shape, collective, algorithm) -> {bytes: seconds}."""
    measured = collections.defaultdict(dict)
    with open(path) as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            key = (row["shape"], row["collective"].lower(), row["algorithm"])
            measured[key][int(row["bytes"])] = float(row["median_ns"]) * 1e-9
    return measured


class Simulator:
    def __init__(self, tamaki):
        self.tamaki = tamaki
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

    def close(self):
        self.folder.cleanup()

    def machine(self, pair, shape, model):
        """A cluster file of that shape, number of engines and constants."""
        with open(os.path.join(ROOT, "topology", "clusters", pair.cluster + ".json")) as file:
            machine = json.load(file)
        machine["fabric"]["shape"] = shape
        if pair.engines != 6:
            machine["fabric"]["engines"] = pair.engines
            machine["fabric"].pop("injection_bandwidth", None)
        machine["model"].update(model)
        path = os.path.join(self.folder.name, "machine.json")
        with open(path, "w") as file:
            json.dump(machine, file)
        return path

    def seconds(self, pair, shape, sizes, model):
        command = [self.tamaki, "simulate", "--cluster", self.machine(pair, shape, model), "--collective",
                   pair.collective, "--algorithm", pair.algorithm, "--lanes", str(pair.lanes), "--pieces", "1",
                   "--bytes", ",".join(map(str, sizes)), "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise SystemExit("%s: %s" % (" ".join(command), done.stderr))
        return {int(result["bytes"]): result["seconds"] for result in json.loads(done.stdout)["results"]}


def compare(simulator, measured, pairs=PAIRS, shapes=SHAPES, models=None):
    points = []
    for pair in pairs:
        for shape in shapes:
            times = measured.get((shape, pair.collective, pair.measured), {})
            if not times:
                continue
            predicted = simulator.seconds(pair, shape, sorted(times), (models or {}).get(pair.cluster, {}))
            points += [Point(pair, shape, size, predicted[size], times[size]) for size in sorted(times)]
    return points


def error(point):
    return point.predicted / point.measured - 1


def median_error(points):
    return statistics.median(abs(error(p)) for p in points)


def order(points, apart=1.2):
    """Pairs of algorithms of one shape, collective and size whose measured times differ by more than 20 %: how many
    there are, and how many are in the same order when predicted."""
    groups = collections.defaultdict(list)
    for p in points:
        groups[p.shape, p.pair.collective, p.bytes].append(p)
    right = both = 0
    for group in groups.values():
        for i, a in enumerate(group):
            for b in group[i + 1:]:
                if max(a.measured, b.measured) <= apart * min(a.measured, b.measured):
                    continue
                both += 1
                right += (a.measured < b.measured) == (a.predicted < b.predicted)
    return right, both


def short(size):
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return "%g%s" % (size / unit, name)
    return str(size)


def summary(points):
    lines = []
    for name, least, most in (("1 MiB and more", 1 << 20, 1 << 60), ("below 1 MiB", 0, (1 << 20) - 1)):
        chosen = [p for p in points if least <= p.bytes <= most]
        others = [p for p in chosen if p.shape != FITTED]
        lines.append("%s: median absolute error %.1f %% of %d times; of the shapes that were not fitted %.1f %% of %d"
                     % (name, 100 * median_error(chosen), len(chosen), 100 * median_error(others), len(others)))
        for collective in ("allreduce", "allgather", "reduce_scatter"):
            part = [p for p in chosen if p.pair.collective == collective]
            lines.append("    %s: %.1f %% of %d" % (collective, 100 * median_error(part), len(part)))
    right, both = order(points)
    lines.append("order: %d of %d pairs that differ by more than 20 %% (%.0f %%)" % (right, both, 100 * right / both))
    return lines


def markdown(points):
    sizes = [s for s in sorted({p.bytes for p in points}) if s >= 1 << 20]
    text = "| measured | as | shape | " + " | ".join(short(s) for s in sizes) + " |\n|---|---|---|" + "---|" * len(sizes) + "\n"
    rows = collections.OrderedDict()
    for p in points:
        rows.setdefault((p.pair, p.shape), {})[p.bytes] = p
    for (pair, shape), cells in rows.items():
        text += "| %s %s | %s, %s | %s |" % (pair.collective, pair.measured, pair.algorithm, pair.cluster, shape)
        for size in sizes:
            p = cells.get(size)
            text += " %s |" % ("%.4g / %.4g ms (%+.0f %%)" % (p.predicted * 1e3, p.measured * 1e3, 100 * error(p)) if p else "")
        text += "\n"
    return text


def svg(points):
    """Predicted over measured, both logarithmic; the band is +-15 %."""
    side, left, top = 520, 80, 60
    low, high = math.log10(5e-6), math.log10(5)
    at = lambda seconds: (math.log10(seconds) - low) / (high - low) * side
    colours = {"fugaku": "#1769aa", "fugaku_bine": "#c2410c", "fugaku_mpi": "#0f766e"}
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">' % (left + side + 40, top + side + 60, left + side + 40, top + side + 60),
           '<style>text{font:12px system-ui,sans-serif;fill:#1f2430}.note{fill:#667085}</style>',
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="%d" y="26" style="font-size:16px;font-weight:600">Simulated and measured times on Fugaku</text>' % left,
           '<g transform="translate(%d,%d)">' % (left, top)]
    band = math.log10(1.15) / (high - low) * side
    out.append('<path d="M0 %.1fL%.1f 0H%d V%.1fL%.1f %dH0Z" fill="#eef2f6"/>' % (side - band, side - band, side, band, band, side))
    for exponent, name in ((-5, "10 us"), (-4, "100 us"), (-3, "1 ms"), (-2, "10 ms"), (-1, "100 ms"), (0, "1 s")):
        x = at(10.0 ** exponent)
        out.append('<path d="M%.1f 0V%d M0 %.1fH%d" stroke="#e4e7ec" fill="none"/>' % (x, side, side - x, side))
        out.append('<text class="note" text-anchor="middle" x="%.1f" y="%d">%s</text><text class="note" text-anchor="end" x="-6" y="%.1f">%s</text>' % (x, side + 16, name, side - x + 4, name))
    out.append('<path d="M0 %d L%d 0" stroke="#667085" fill="none"/>' % (side, side))
    for p in points:
        title = "%s %s, %s, %s: simulated %.4g ms, measured %.4g ms" % (p.pair.collective, p.pair.measured, p.shape, short(p.bytes), p.predicted * 1e3, p.measured * 1e3)
        fill = colours[p.pair.cluster]
        out.append('<circle cx="%.1f" cy="%.1f" r="3.2" fill="%s" fill-opacity="%s" stroke="%s"><title>%s</title></circle>' % (
            at(p.measured), side - at(p.predicted), fill, "0.15" if p.shape == FITTED else "0.8", fill, title))
    for i, (name, colour) in enumerate(colours.items()):
        out.append('<circle cx="16" cy="%d" r="4" fill="%s"/><text x="26" y="%d">%s</text>' % (18 + 18 * i, colour, 22 + 18 * i, name))
    out.append('<text class="note" x="12" y="80">hollow: the shape that was fitted; band: 15 %</text>')
    out.append('<text text-anchor="middle" x="%d" y="%d">measured</text><text text-anchor="middle" transform="translate(-58,%d) rotate(-90)">simulated</text></g></svg>' % (side // 2, side + 38, side // 2))
    return "\n".join(out) + "\n"


def fit(simulator, measured):
    """One constant after the other, three times round, by factors; on one shape. The loss is the mean of the absolute
    logarithms of predicted over measured, each counted as 0.35 at most: what a model cannot describe must not bend it."""
    factors = (0.5, 0.7, 0.85, 1.2, 1.4, 2)
    tasks = {
        "fugaku": (1 << 40, {"step_s": 1e-7}),
        "fugaku_bine": (1 << 40, {"step_s": 2e-6}),
        "fugaku_mpi": (64 << 20, {"step_s": 1e-6, "startup_s": 1e-6, "rendezvous_s": 7e-6, "reduce_bandwidth": 15e9}),
    }
    for cluster, (most, model) in tasks.items():
        pairs = [p for p in PAIRS if p.cluster == cluster]
        some = {key: {s: t for s, t in times.items() if s <= most} for key, times in measured.items()}

        def loss(candidate):
            points = compare(simulator, some, pairs, (FITTED,), {cluster: candidate})
            return statistics.mean(min(abs(math.log(p.predicted / p.measured)), 0.35) for p in points)
        least = loss(model)
        for _ in range(3):
            for name in model:
                for factor in factors:
                    candidate = dict(model, **{name: model[name] * factor})
                    now = loss(candidate)
                    if now < least - 1e-4:
                        least, model = now, candidate
        print(cluster, " ".join("%s=%.3g" % item for item in model.items()), "loss %.3f" % least, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamaki", required=True, help="the command")
    parser.add_argument("--markdown", help="file for the table")
    parser.add_argument("--svg", help="file for the plot")
    parser.add_argument("--fit", action="store_true", help="fit the constants instead")
    arguments = parser.parse_args()
    simulator, measured = Simulator(arguments.tamaki), load()
    if arguments.fit:
        return fit(simulator, measured)
    points = compare(simulator, measured)
    for p in points:
        print("%-14s %-28s %-11s %-18s %s %5s %11.1f %11.1f us %+5.0f %%" % (
            p.pair.collective, p.pair.measured, p.pair.cluster, p.pair.algorithm, p.shape, short(p.bytes), p.predicted * 1e6,
            p.measured * 1e6, 100 * error(p)))
    print("\n".join(summary(points)))
    if arguments.markdown:
        with open(arguments.markdown, "w") as file:
            file.write(markdown(points))
    if arguments.svg:
        with open(arguments.svg, "w") as file:
            file.write(svg(points))


if __name__ == "__main__":
    sys.exit(main())
