#!/usr/bin/env python3
"""Measures allreduce of f32 by Tamaki, by the MPI libraries of this machine and by the plain two-thread bound, in turn
in one run, and holds the result against the figures to reach.

    perf_tests/compare.py --build build/release [--out out/bench] [--json FILE] [--rounds 3] [--repetitions 5]
                          [--only 2,8,pass] [--quick] [--peers openmpi,mpich]

--build   holds libtamaki.so, libtamaki_mpi_*.so and bin/tamaki
--out     programs and raw output go there (default: BUILD/compare)
--rounds  every contender runs once a round, one after the other; a cell is the median over all rounds and repetitions
--only    2: two ranks on two cores; 8: eight ranks on two cores; pass: cost of a call the preload passes through
--quick   few sizes and short repetitions: shows that everything runs, not how fast

Contenders: each MPI in several settings, of which the best counts, cell by cell; Tamaki with private and with
tmkMemAlloc buffers; both MPIs with the preload in front (private buffers). Peers that are not installed are left out.
Ranks are bound to cores (two ranks) or to the two cores in turn (eight). Buffers are touched before the clock starts.
All run the same loop, perf_tests/allreduce_bench.c. Times are of the slowest rank.

Exit status: 0 all figures reached, 1 some missed, 3 a contender failed (its output is shown).
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
KIB, MIB = 1 << 10, 1 << 20

# What is to be reached: (sizes, place) -> at most so much of the faster peer's time with private and shared buffers,
# and with shared buffers at most so many times the bound.
TARGETS = [
    {'ranks': 2, 'place': 'out', 'sizes': [8, 64, 512], 'private': 0.75, 'shared': 0.75, 'bound': None},
    {'ranks': 2, 'place': 'out', 'sizes': [4 * KIB, 16 * KIB], 'private': 0.5, 'shared': 0.4, 'bound': None},
    {'ranks': 2, 'place': 'out', 'sizes': [64 * KIB, MIB, 8 * MIB, 64 * MIB], 'private': 0.6, 'shared': 0.3, 'bound': 1.5},
    {'ranks': 2, 'place': 'in', 'sizes': [64 * KIB, MIB, 8 * MIB, 64 * MIB], 'private': 0.9, 'shared': 0.45, 'bound': None},
    {'ranks': 8, 'place': 'out', 'sizes': [8, 512, 4 * KIB, 64 * KIB], 'private': 0.5, 'shared': 0.5, 'bound': None},
]
PASS_THROUGH_NS = 60

OPENMPI = {  # name -> arguments of mpirun
    'default': [],
    'no single copy': ['--mca', 'btl_vader_single_copy_mechanism', 'none'],
    'cma': ['--mca', 'btl_vader_single_copy_mechanism', 'cma'],
    'recursive doubling': ['--mca', 'coll_tuned_use_dynamic_rules', '1', '--mca', 'coll_tuned_allreduce_algorithm', '3'],
    'ring': ['--mca', 'coll_tuned_use_dynamic_rules', '1', '--mca', 'coll_tuned_allreduce_algorithm', '4'],
    'rabenseifner': ['--mca', 'coll_tuned_use_dynamic_rules', '1', '--mca', 'coll_tuned_allreduce_algorithm', '6'],
}
MPICH = {  # name -> environment
    'default': {},
    'recursive doubling': {'MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM': 'recursive_doubling'},
    'reduce-scatter and allgather': {'MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM': 'reduce_scatter_allgather'},
}
OPENMPI_MANY = {'yield': ['--mca', 'mpi_yield_when_idle', '1'],
                'yield, no single copy': ['--mca', 'mpi_yield_when_idle', '1', '--mca', 'btl_vader_single_copy_mechanism', 'none']}
MPICH_MANY = {'default': {}}


def size_text(size):
    for unit, name in ((MIB, 'MiB'), (KIB, 'KiB')):
        if size >= unit:
            return f'{size // unit} {name}'
    return f'{size} B'


def run_text(command, environment=None, timeout=600):
    """Output of a command; (None, reason) where it failed."""
    try:
        done = subprocess.run(command, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None, f'no end within {timeout} s'
    except OSError as error:
        return None, str(error)
    return (done.stdout, '') if done.returncode == 0 else (None, f'status {done.returncode}: {done.stdout[-600:]}')


def compile_programs(build, out, peers):
    """Compiles the benchmark for each contender; returns the peers that can be used."""
    source = os.path.join(HERE, 'allreduce_bench.c')
    jobs = {'bound': ['c++', '-std=c++20', '-O3', os.path.join(HERE, 'bound.cpp'), '-pthread'],
            'tamaki': ['cc', '-std=c99', '-O3', source, '-I', os.path.join(ROOT, 'include'), '-L', build, '-ltamaki',
                       f'-Wl,-rpath,{os.path.abspath(build)}']}
    for peer in peers:
        if shutil.which(f'mpicc.{peer}') and shutil.which(f'mpirun.{peer}'):
            jobs[peer] = [f'mpicc.{peer}', '-std=c99', '-O3', '-DBENCH_MPI', source]
        else:
            print(f'# {peer} is not installed: left out')
    for name, command in jobs.items():
        text, why = run_text(command + ['-o', os.path.join(out, f'bench_{name}')])
        if text is None:
            sys.exit(f'compare.py: compiling bench_{name}: {why}')
    return [peer for peer in peers if peer in jobs]


class Contender:
    def __init__(self, kind, setting, command, environment=None):
        self.kind, self.setting, self.command, self.environment = kind, setting, command, environment or {}
        self.times = {}  # (place, size) -> [us]
        self.failed = ''

    def measure(self, place, sizes, repetitions, seconds, extra=()):
        if self.failed:
            return
        command = self.command + ['-b', ','.join(map(str, sizes)), '-p', place, '-r', str(repetitions), '-t', str(seconds), *extra]
        text, why = run_text(command, self.environment)
        if text is None:
            self.failed = why
            return
        for line in text.splitlines():
            words = line.split()
            if len(words) >= 3 and words[0].isdigit():
                self.times.setdefault((place, int(words[0])), []).extend(float(w) for w in words[2:])

    def median(self, place, size):
        times = self.times.get((place, size))
        return statistics.median(times) if times else None

    def name(self):
        return f'{self.kind} ({self.setting})' if self.setting else self.kind


def mpi_command(peer, ranks, out, arguments=(), variables=None):
    """mpirun of one peer; `variables` go to the ranks only (a preload must not get into mpirun itself)."""
    program = os.path.join(out, f'bench_{peer}')
    if peer == 'openmpi':
        command = ['mpirun.openmpi', '-n', str(ranks), *(['--bind-to', 'core'] if ranks == 2 else ['--oversubscribe', '--bind-to', 'none'])]
        command += list(arguments)
        for name, value in (variables or {}).items():
            command += ['-x', f'{name}={value}']
        return command + [program]
    command = ['mpirun.mpich', '-n', str(ranks), *(['-bind-to', 'core'] if ranks == 2 else [])]
    for name, value in (variables or {}).items():
        command += ['-genv', name, str(value)]
    return command + [program]


def contenders(ranks, build, out, peers):
    many = ranks > 2
    result = []
    if 'openmpi' in peers:
        for setting, arguments in (OPENMPI_MANY if many else OPENMPI).items():
            result.append(Contender('openmpi', setting, mpi_command('openmpi', ranks, out, arguments)))
    if 'mpich' in peers:
        for setting, variables in (MPICH_MANY if many else MPICH).items():
            result.append(Contender('mpich', setting, mpi_command('mpich', ranks, out, variables=variables)))
    launch = [os.path.join(build, 'bin', 'tamaki'), 'run', '-n', str(ranks), '--no-tag', '--bind', 'core', '--', os.path.join(out, 'bench_tamaki')]
    result.append(Contender('private', '', launch))
    result.append(Contender('shared', '', launch + ['-m', 'shared']))
    for peer in peers:
        preload = os.path.join(os.path.abspath(build), f'libtamaki_mpi_{peer}.so')
        if os.path.exists(preload):
            arguments = ['--mca', 'mpi_yield_when_idle', '1'] if many and peer == 'openmpi' else []
            result.append(Contender('preload ' + peer, '', mpi_command(peer, ranks, out, arguments, {'LD_PRELOAD': preload})))
    if not many:
        result.append(Contender('bound', '', [os.path.join(out, 'bench_bound')]))
    return result


def pass_through(build, out, peers, rounds):
    """Cost of the preload on calls that it hands on, in ns: medians with and without, in turn."""
    cells = []
    for peer in peers:
        preload = os.path.join(os.path.abspath(build), f'libtamaki_mpi_{peer}.so')
        if not os.path.exists(preload):
            continue
        plain = Contender('plain', '', mpi_command(peer, 1, out))
        loaded = Contender('preload', '', mpi_command(peer, 1, out, variables={'LD_PRELOAD': preload, 'TAMAKI_MPI_MIN_BYTES': '1G'}))
        for _ in range(rounds):
            for contender in (plain, loaded):
                contender.measure('out', [4], 5, 0, ('-c',))
        if plain.failed or loaded.failed:
            print(f'compare.py: {peer}: {plain.failed or loaded.failed}', file=sys.stderr)
            cells.append({'peer': peer, 'failed': plain.failed or loaded.failed, 'reached': False})
            continue
        a, b = plain.median('out', 4), loaded.median('out', 4)
        cells.append({'peer': peer, 'plain_ns': a * 1e3, 'preload_ns': b * 1e3, 'cost_ns': (b - a) * 1e3,
                      'target_ns': PASS_THROUGH_NS, 'reached': (b - a) * 1e3 <= PASS_THROUGH_NS})
    return cells


def fastest(candidates, place, size):
    best = None
    for contender in candidates:
        time = contender.median(place, size)
        if time is not None and (best is None or time < best[0]):
            best = (time, contender)
    return best


def judge(target, place, size, all_contenders):
    """The cells of one size: a dict for each of ours."""
    peers = {kind: fastest([c for c in all_contenders if c.kind == kind], place, size) for kind in ('openmpi', 'mpich')}
    peer = min((p for p in peers.values() if p), key=lambda p: p[0], default=None)
    bound = fastest([c for c in all_contenders if c.kind == 'bound'], place, size)
    cells = []
    for contender in all_contenders:
        if contender.kind in ('openmpi', 'mpich', 'bound'):
            continue
        column = 'shared' if contender.kind == 'shared' else 'private'
        time = contender.median(place, size)
        cell = {'ranks': target['ranks'], 'place': place, 'bytes': size, 'what': contender.kind, 'us': time,
                'target': target[column], 'peer': peer[1].name() if peer else None, 'peer_us': peer[0] if peer else None,
                'peers_us': {k: p[0] if p else None for k, p in peers.items()}, 'bound_us': bound[0] if bound else None}
        cell['ratio'] = time / peer[0] if time and peer else None
        cell['reached'] = cell['ratio'] is not None and cell['ratio'] <= target[column]
        if column == 'shared' and target['bound'] and bound and time:
            cell['bound_ratio'] = time / bound[0]
            cell['bound_target'] = target['bound']
            cell['reached'] = cell['reached'] and cell['bound_ratio'] <= target['bound']
        cells.append(cell)
    return cells


def show(cells):
    def number(value, form='{:.2f}'):
        return '-' if value is None else form.format(value)
    print(f"\n{'ranks':>5} {'place':>5} {'size':>8} {'what':<16} {'us':>10} {'faster peer':>12} {'ratio':>6} {'target':>6} {'bound':>9} {'x bound':>8}  ")
    for c in cells:
        print(f"{c['ranks']:>5} {c['place']:>5} {size_text(c['bytes']):>8} {c['what']:<16} {number(c['us']):>10} {number(c['peer_us']):>12} "
              f"{number(c['ratio']):>6} {c['target']:>6} {number(c['bound_us']):>9} {number(c.get('bound_ratio')):>8}  "
              f"{'reached' if c['reached'] else 'MISSED'}  ({c['peer'] or 'no peer'})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', required=True)
    parser.add_argument('--out')
    parser.add_argument('--json')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--repetitions', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=0.05, help='length of a repetition')
    parser.add_argument('--only', default='2,8,pass')
    parser.add_argument('--peers', default='openmpi,mpich')
    parser.add_argument('--quick', action='store_true')
    arguments = parser.parse_args()
    os.environ.setdefault('OMPI_ALLOW_RUN_AS_ROOT', '1')
    os.environ.setdefault('OMPI_ALLOW_RUN_AS_ROOT_CONFIRM', '1')
    out = os.path.abspath(arguments.out or os.path.join(arguments.build, 'compare'))
    os.makedirs(out, exist_ok=True)
    peers = compile_programs(arguments.build, out, [p for p in arguments.peers.split(',') if p])
    only = arguments.only.split(',')
    rounds, repetitions, seconds = (1, 2, 0.005) if arguments.quick else (arguments.rounds, arguments.repetitions, arguments.seconds)
    cells, raw, failed = [], [], False
    for ranks in (2, 8):
        if str(ranks) not in only:
            continue
        targets = [dict(t) for t in TARGETS if t['ranks'] == ranks]
        if arguments.quick:
            for t in targets:
                t['sizes'] = [s for s in t['sizes'] if s <= MIB][:1]
        everybody = contenders(ranks, arguments.build, out, peers)
        for turn in range(rounds):
            for contender in everybody:
                print(f'# {ranks} ranks, round {turn + 1} of {rounds}: {contender.name()}', file=sys.stderr, flush=True)
                for place in ('out', 'in'):
                    sizes = sorted(s for t in targets if t['place'] == place for s in t['sizes'])
                    # An MPI that collapses with more ranks than cores is not waited for at every size.
                    many = ranks > 2 and contender.kind == 'mpich'
                    if sizes:
                        contender.measure(place, sizes, 2 if many else repetitions, 0.01 if many else seconds)
        for contender in everybody:
            if contender.failed:
                failed = True
                print(f'compare.py: {contender.name()}, {ranks} ranks: {contender.failed}', file=sys.stderr)
            raw.append({'ranks': ranks, 'kind': contender.kind, 'setting': contender.setting, 'command': contender.command,
                        'us': [{'place': p, 'bytes': s, 'times': t} for (p, s), t in contender.times.items()]})
        for target in targets:
            for size in target['sizes']:
                cells += judge(target, target['place'], size, everybody)
    show(cells)
    passed = []
    if 'pass' in only:
        passed = pass_through(arguments.build, out, peers, rounds)
        failed = failed or any('failed' in c for c in passed)
        print('\ncalls that the preload passes through (MPI_Allreduce of 4 bytes on MPI_COMM_SELF):')
        for c in passed:
            if 'failed' not in c:
                print(f"  {c['peer']:<10} plain {c['plain_ns']:.0f} ns, with preload {c['preload_ns']:.0f} ns: {c['cost_ns']:+.0f} ns "
                      f"(at most {PASS_THROUGH_NS})  {'reached' if c['reached'] else 'MISSED'}")
    missed = sum(not c['reached'] for c in cells + passed)
    print(f'\n{len(cells) + len(passed)} figures, {missed} missed')
    if arguments.json:
        with open(arguments.json, 'w') as file:
            json.dump({'cells': cells, 'pass_through': passed, 'raw': raw, 'rounds': rounds, 'repetitions': repetitions,
                       'machine': os.uname().version, 'cores': len(os.sched_getaffinity(0))}, file, indent=1)
    return 3 if failed else 1 if missed else 0


if __name__ == '__main__':
    sys.exit(main())
