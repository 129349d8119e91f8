#!/usr/bin/env python3
"""The sweep of docs/sweep: every allreduce at 12 sizes from 1 KiB to 4 GiB on 13,824 nodes of Fugaku and the 800 GPUs of
SAKURAONE, in the simulator.

    perf_tests/sweep.py --tamaki build/release/bin/tamaki --out docs/sweep

Each algorithm is a run of its own, as many at a time as there are cores, with the wishes below. One that takes longer than
--limit seconds is stopped and listed as such: messages of some grow as ranks x log(ranks) with no two ranks alike. Writes sweep.md (tables, crossings), a plot of time and of bus bandwidth for each machine, and heatmaps.
"""
import argparse
import concurrent.futures
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from xml.sax.saxutils import escape

SIZES = [1 << 10 + 2 * i for i in range(12)]
MACHINES = ("fugaku:48x6x48", "sakuraone")
# What is tried of each. Slices are messages that pass through the whole schedule one behind the other: they multiply what is
# simulated, and serve those whose steps are few and large.
WISHES = {"fugaku:48x6x48": {"torus": ["--lanes", "1", "--pieces", "1,8,32,64", "--slices", "1,2"],
                             "": ["--lanes", "1", "--pieces", "1,8,32", "--radix", "2,4,8", "--slices", "1"]},
          "sakuraone": {"rail": ["--lanes", "1,8", "--pieces", "1,8,32", "--slices", "1"],
                        "hierarchical": ["--lanes", "1,8", "--pieces", "1,8,32", "--slices", "1"],
                        "": ["--lanes", "1,8", "--pieces", "1,8,32,128", "--radix", "2,4,8", "--slices", "1"]}}
# Those that take longest, first, and a quarter of the sizes at a time, so that all cores end together.
LONG = [("fugaku:48x6x48", name) for name in ("swing", "hierarchical", "bine", "hierarchical_tree", "ring", "torus")]
LONG += [("sakuraone", name) for name in ("rail", "hierarchical", "ring")]
PARTS = 4


def algorithms(tamaki):
    done = subprocess.run([tamaki, "simulate", "--cluster", "torus:2", "--bytes", "1K", "--json", "-"], capture_output=True, text=True,
                          check=True, timeout=120)
    document = json.loads(done.stdout)
    return sorted({r["algorithm"] for r in document["results"]} | set(document["refused"]))


def run(tamaki, machine, algorithm, sizes, limit):
    """(results by bytes, why there are none, seconds it took)."""
    wishes = WISHES[machine].get(algorithm, WISHES[machine][""])
    command = [tamaki, "simulate", "--cluster", machine, "--collective", "allreduce", "--algorithm", algorithm, "--bytes",
               ",".join(map(str, sizes)), "-j1", "-q", "--json", "-", *wishes]
    begin = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {}, "stopped after %g s" % limit, limit
    took = time.monotonic() - begin
    if done.returncode != 0 and not done.stdout:
        return {}, done.stderr.strip().split("\n")[-1], took
    document = json.loads(done.stdout)
    return {int(r["bytes"]): r for r in document["results"]}, document["refused"].get(algorithm, ""), took


def size_text(n):
    for unit, power in (("G", 30), ("M", 20), ("K", 10)):
        if n >= 1 << power:
            return "%d%s" % (n >> power, unit)
    return str(n)


def time_text(s):
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if s >= scale or unit == "us":
            return "%.3g %s" % (s / scale, unit)


def best_at(table, size):
    there = [(rows[size]["seconds"], name) for name, rows in table.items() if size in rows]
    return min(there) if there else (math.inf, "")


def crossings(table, sizes):
    """(bytes, below, above): where the lines of the fastest before and after meet, both axes logarithmic."""
    found = []
    for x0, x1 in zip(sizes, sizes[1:]):
        a, b = best_at(table, x0)[1], best_at(table, x1)[1]
        if a == b or not a or not b:
            continue
        at = lambda name, size: table[name][size]["seconds"] if size in table[name] else math.inf
        before, after = math.log(at(b, x0) / at(a, x0)), math.log(at(a, x1) / at(b, x1))
        part = before / (before + after) if math.isfinite(before + after) and before + after > 0 else 0.5
        found.append((x0 * (x1 / x0) ** part, a, b))
    return found


COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#16a085", "#7f8c8d", "#d81b60", "#5d4037", "#283593", "#9e9d24", "#00838f")


def plot(table, sizes, bounds, title, ylabel, value, meets):
    """An SVG of one curve an algorithm, both axes logarithmic; grey where it is never within twice of the fastest."""
    width, height, left, right, top, bottom = 820, 470, 70, 170, 40, 50
    points = {name: [(s, value(s, rows[s]["seconds"])) for s in sizes if s in rows] for name, rows in table.items()}
    points = {name: line for name, line in points.items() if line}
    limit = [(s, value(s, bounds[s])) for s in sizes if bounds.get(s, 0) > 0]
    values = [v for line in [*points.values(), limit] for _, v in line if v > 0]
    low, high = math.log10(min(values)), math.log10(max(values))
    x = lambda s: left + (width - left - right) * math.log(s / sizes[0]) / math.log(sizes[-1] / sizes[0])
    y = lambda v: height - bottom - (height - top - bottom) * (math.log10(v) - low) / (high - low)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (width, height),
           '<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="15">%s</text>' % (left, escape(title))]
    for decade in range(math.ceil(low), math.floor(high) + 1):
        out.append('<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>'
                   % (left, y(10 ** decade), width - right, left - 6, y(10 ** decade) + 4, 10 ** decade))
    for s in sizes:
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (x(s), height - bottom + 18, size_text(s)))
    for at, below, above in meets:
        out.append('<path d="M%.1f %dV%d" stroke="#999" stroke-dasharray="3 3"/>' % (x(at), top, height - bottom))
    near = [n for n in points if any(table[n][s]["seconds"] <= 2 * best_at(table, s)[0] for s in sizes if s in table[n])]
    labels = []
    for name in sorted(points, key=lambda n: n in near):
        colour = COLOURS[near.index(name) % len(COLOURS)] if name in near else "#ccc"
        path = " ".join("%s%.1f %.1f" % ("L" if i else "M", x(s), y(v)) for i, (s, v) in enumerate(points[name]))
        out.append('<path d="%s" fill="none" stroke="%s" stroke-width="%s"/>' % (path, colour, 2 if name in near else 1))
        labels.append([y(points[name][-1][1]), name, colour])
    if limit:
        out.append('<path d="%s" fill="none" stroke="black" stroke-dasharray="6 4"/>'
                   % " ".join("%s%.1f %.1f" % ("L" if i else "M", x(s), y(v)) for i, (s, v) in enumerate(limit)))
        labels.append([y(limit[-1][1]), "bound by injection", "black"])
    labels.sort()
    for i in range(1, len(labels)):
        labels[i][0] = max(labels[i][0], labels[i - 1][0] + 13)
    for at, name, colour in labels:
        out.append('<text x="%d" y="%.1f" fill="%s">%s</text>' % (width - right + 8, at + 4, colour if colour != "#ccc" else "#888", escape(name)))
    out.append('<text x="16" y="%d" transform="rotate(-90 16 %d)" text-anchor="middle">%s</text></svg>' % (height / 2, height / 2, ylabel))
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamaki", required=True)
    parser.add_argument("--out", default="docs/sweep")
    parser.add_argument("--limit", type=float, default=300, help="seconds for an algorithm on a machine, or for the sizes of it that are one job")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    names = algorithms(arguments.tamaki)
    jobs = [(*one, SIZES[part::PARTS]) for one in LONG if one[1] in names for part in reversed(range(PARTS))]
    jobs += [(machine, name, SIZES) for machine in MACHINES for name in names if (machine, name) not in LONG]
    begin, done = time.monotonic(), {(machine, name): ({}, "", 0.0) for machine in MACHINES for name in names}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        futures = {pool.submit(run, arguments.tamaki, *job, arguments.limit): job for job in jobs}
        for number, future in enumerate(concurrent.futures.as_completed(futures)):
            machine, name, _ = futures[future]
            rows, why, took = future.result()
            before = done[machine, name]
            done[machine, name] = ({**before[0], **rows}, why or before[1], before[2] + took)
            print("%3d of %d  %5.0f s  %s %s: %s, %.1f s" % (number + 1, len(jobs), time.monotonic() - begin, machine, name,
                                                         why or "%d sizes" % len(rows), took), file=sys.stderr, flush=True)
    wall = time.monotonic() - begin
    text = ["# Every allreduce at 12 sizes on two machines\n",
            "Simulated by `perf_tests/sweep.py --tamaki build/release/bin/tamaki --limit %g`, %d at a time, in %.0f s. `*` is the fastest;"
            % (arguments.limit, arguments.jobs, wall), "`bound` is what the injection of a node takes at least.\n"]
    for machine in MACHINES:
        table = {name: rows for (m, name), (rows, _, _) in done.items() if m == machine and rows}
        sizes = sorted({s for rows in table.values() for s in rows})
        bounds = {s: r["bound_s"] for rows in table.values() for s, r in rows.items()}
        meets, stem = crossings(table, sizes), machine.split(":")[0]
        ranks = 13824 if machine.startswith("fugaku") else 800
        plots = (("time", "seconds", lambda s, t: t), ("bandwidth", "bus bandwidth, GB/s", lambda s, t: 2 * (ranks - 1) / ranks * s / t / 1e9))
        text.append("## %s\n" % machine)
        for what, label, value in plots:
            with open(os.path.join(arguments.out, "%s_%s.svg" % (stem, what)), "w") as file:
                file.write(plot(table, sizes, bounds, "%s: allreduce, simulated" % machine, label, value, meets))
            text.append("![%s](%s_%s.svg)" % (what, stem, what))
        text += ["", "| | %s |" % " | ".join(map(size_text, sizes)), "|---%s|" % ("|---" * len(sizes))]
        for name in sorted(table, key=lambda n: min(table[n].get(s, {"seconds": math.inf})["seconds"] / best_at(table, s)[0] for s in sizes)):
            cells = ["%s%s" % (time_text(table[name][s]["seconds"]), " *" if best_at(table, s)[1] == name else "") if s in table[name] else ""
                     for s in sizes]
            text.append("| %s | %s |" % (name, " | ".join(cells)))
        text.append("| bound | %s |\n" % " | ".join(time_text(bounds[s]) for s in sizes))
        text += ["- up to %s %s, above %s" % (size_text(int(at)), below, above) for at, below, above in meets]
        text += ["- %s: %s" % (name, why) for (m, name), (rows, why, _) in sorted(done.items()) if m == machine and why and not rows]
        best = best_at(table, sizes[-1])[1]
        row = table[best][sizes[-1]]
        map_path = os.path.join(arguments.out, "%s_links.svg" % stem)
        subprocess.run([arguments.tamaki, "simulate", "--cluster", machine, "--algorithm", best, "--bytes", "4G", "--lanes", str(row["lanes"]),
                        "--pieces", str(row["pieces"]), "--radix", str(row["radix"]), "--slices", str(row["slices"]), "-q", "--heatmap", map_path],
                       check=True, stdout=subprocess.DEVNULL, timeout=300)
        text.append("\n![Time in use of each link, %s at 4 GiB](%s_links.svg)\n" % (best, stem))
    with open(os.path.join(arguments.out, "sweep.md"), "w") as file:
        file.write("\n".join(text))
    print("%s in %.0f s" % (os.path.join(arguments.out, "sweep.md"), wall), file=sys.stderr)


if __name__ == "__main__":
    main()
