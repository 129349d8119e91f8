#!/usr/bin/env python3
"""Measures allreduce of f32 across test hosts whose links are shaped: Tamaki against Open MPI at its best and against
itself with less knowledge of the network, in turn in one run, and holds the result against the figures to reach.

    perf_tests/multihost.py --build build/release [--out out/multihost] [--json FILE] [--shapes a,b,c,small]
                            [--sizes 1M,16M] [--rounds 3] [--rate 1gbit] [--quick]

Shapes (tests/multihost/hosts.sh makes and removes them; needs root):
  a      4 hosts x 2 ranks behind one switch
  b      8 hosts as a 2x2x2 torus, a link of its own for each pair of neighbours
  c      4 hosts x 1 rank, two rails; then one rail slowed to a quarter
  small  shape a, 8 B to 4 KiB
Open MPI's best: the fastest of its tuned algorithms, han and basic, each with ranks mapped by slot and by node.
Exit status: 0 all figures reached, 1 some missed, 3 a contender failed everywhere, 77 the machine cannot make hosts.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from compare import compile_programs, run_text, size_text  # noqa: E402

HOSTS = os.path.join(os.path.dirname(HERE), 'tests', 'multihost', 'hosts.sh')
MIB = 1 << 20
TUNED = {1: 'linear', 2: 'nonoverlapping', 3: 'recursive doubling', 4: 'ring', 5: 'segmented ring', 6: 'rabenseifner'}


def parse_size(text):
    units = {'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1:].upper() in units else int(text)


class Contender:
    def __init__(self, name, command):
        self.name, self.command, self.times, self.failed = name, command, {}, ''

    def measure(self, sizes, repetitions, seconds, timeout):
        if self.failed:
            return
        text, why = run_text(self.command + ['-b', ','.join(map(str, sizes)), '-r', str(repetitions), '-t', str(seconds)],
                             timeout=timeout)
        if text is None:
            self.failed = why
            return
        for line in text.splitlines():
            words = line.split()
            if len(words) >= 3 and words[0].isdigit():
                self.times.setdefault(int(words[0]), []).extend(float(w) for w in words[2:])

    def median(self, size):
        times = self.times.get(size)
        return statistics.median(times) if times else None


def hosts(*words):
    done = subprocess.run([HOSTS, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(f'multihost.py: {HOSTS} {" ".join(map(str, words))}: {done.stdout.strip()}')
    return done.stdout.strip()


def tamaki(build, out, name, names, slots, environment=None):
    command = [os.path.join(build, 'bin', 'tamaki'), 'run', '--hosts', ','.join(f'{n}:{slots}' for n in names), '--rsh',
               f'{HOSTS} agent', '--no-tag', '--timeout', '300']
    for key, value in (environment or {}).items():
        command += ['--env', f'{key}={value}']
    return Contender(name, command + ['--', os.path.join(out, 'bench_tamaki')])


def openmpi(out, name, names, slots, interfaces, arguments):
    ranks = len(names) * slots
    command = ['mpirun.openmpi', '--allow-run-as-root', '-n', str(ranks), '--host', ','.join(f'{n}:{slots}' for n in names),
               '--mca', 'plm_rsh_agent', f'{HOSTS} agent', '--mca', 'plm_rsh_no_tree_spawn', '1', '--bind-to', 'none',
               # A host's processes end with the command that was sent there: its daemon must not go to the background.
               '--leave-session-attached',
               '--mca', 'oob_tcp_if_include', interfaces.split(',')[0], '--mca', 'btl', 'tcp,vader,self',
               '--mca', 'btl_tcp_if_include', interfaces, '--mca', 'mpi_yield_when_idle', '1', *arguments]
    # mpirun itself has to be on a host that the others reach.
    return Contender(name, [HOSTS, 'exec', names[0], *command, os.path.join(out, 'bench_openmpi')])


def all_of_openmpi(out, names, slots, interfaces, quick):
    made = []
    for mapping in (['slot', 'node'] if slots > 1 else ['slot']):
        place = ['--map-by', mapping]
        rules = ['--mca', 'coll_tuned_use_dynamic_rules', '1', '--mca', 'coll_tuned_allreduce_algorithm']
        made.append(openmpi(out, f'Open MPI, default, by {mapping}', names, slots, interfaces, place))
        for number, title in TUNED.items():
            if quick and number not in (4, 6):
                continue
            made.append(openmpi(out, f'Open MPI, {title}, by {mapping}', names, slots, interfaces, place + rules + [str(number)]))
        if not quick:
            made.append(openmpi(out, f'Open MPI, han, by {mapping}', names, slots, interfaces,
                                place + ['--mca', 'coll_han_priority', '100']))
    return made


def best(contenders, size):
    timed = [(c.median(size), c.name) for c in contenders if c.median(size)]
    return min(timed) if timed else (None, '')


def measure(contenders, sizes, options, rounds=None):
    for turn in range(rounds or options.rounds):
        for contender in contenders:
            print(f'# round {turn + 1}: {contender.name}', file=sys.stderr, flush=True)
            contender.measure(sizes, 3 if max(sizes) >= MIB else 7, 0.2 if max(sizes) >= MIB else 0.1, 120)
            if contender.failed:
                print(f'# {contender.name}: {contender.failed.strip()[-300:]}', file=sys.stderr)


class Report:
    def __init__(self):
        self.rows, self.missed, self.void = [], 0, 0

    def claim(self, shape, size, what, ours, peer, peer_name, at_least=None, at_most=None):
        if not ours or not peer:
            self.void += 1
            print(f'{shape:6} {size_text(size):>8}  {what}: not measured')
            return
        ratio = peer / ours if at_least else ours / peer
        good = ratio >= at_least if at_least else ratio <= at_most
        self.missed += not good
        wanted = f'at least {at_least} times faster' if at_least else f'at most {at_most} of the time'
        print(f'{shape:6} {size_text(size):>8}  {what}: {ours:.0f} us against {peer:.0f} us ({peer_name}): {ratio:.2f} '
              f'({wanted}){"" if good else "   MISSED"}')
        self.rows.append({'shape': shape, 'bytes': size, 'what': what, 'us': ours, 'peer_us': peer, 'peer': peer_name,
                          'ratio': ratio, 'wanted': at_least or at_most, 'reached': good})


def shape_a(options, report, small):
    hosts('switch', 4, options.rate)
    try:
        names = [f'{options.prefix}{i}' for i in range(4)]
        ours = tamaki(options.build, options.out, 'Tamaki', names, 2)
        # The worst order of a ring: every message crosses the switch.
        apart = tamaki(options.build, options.out, 'Tamaki, flat ring, ranks dealt out', names, 2, {'TAMAKI_ALLREDUCE': 'ring'})
        apart.command.append('-d')
        peers = all_of_openmpi(options.out, names, 2, 'eth0', options.quick)
        sizes = [8, 64, 512, 4096] if small else options.sizes
        measure([ours, *([] if small else [apart]), *peers], sizes, options)
        for size in sizes:
            peer, name = best(peers, size)
            if small:
                report.claim('small', size, 'against Open MPI', ours.median(size), peer, name, at_most=0.7)
                continue
            report.claim('a', size, 'against a flat ring', ours.median(size), apart.median(size), apart.name, at_least=2.2)
            report.claim('a', size, 'against Open MPI', ours.median(size), peer, name, at_least=1.2)
    finally:
        hosts('down')


def shape_b(options, report):
    hosts('torus', '2 2 2', options.rate)
    try:
        names = [f'{options.prefix}{i}' for i in range(8)]
        machine = {'TAMAKI_MACHINE': 'torus:2x2x2'}
        ours = tamaki(options.build, options.out, 'Tamaki', names, 1, machine)
        # A Hamiltonian cycle of the cube, so that the ring too uses links of its own.
        cycle = [0, 1, 3, 2, 6, 7, 5, 4]
        ring = tamaki(options.build, options.out, 'Tamaki, one ring', [names[i] for i in cycle], 1,
                      {'TAMAKI_ALLREDUCE': 'ring', 'TAMAKI_LANES': '1'})
        interfaces = '10.96.0.0/24,10.97.0.0/16'
        peers = all_of_openmpi(options.out, names, 1, interfaces, options.quick)
        measure([ours, ring, *peers], options.sizes, options)
        for size in options.sizes:
            peer, name = best(peers, size)
            report.claim('b', size, 'against one ring', ours.median(size), ring.median(size), ring.name, at_least=2.5)
            report.claim('b', size, 'against Open MPI', ours.median(size), peer, name, at_least=2.5)
    finally:
        hosts('down')


def shape_c(options, report):
    hosts('switch', 4, options.rate, 2)
    try:
        names = [f'{options.prefix}{i}' for i in range(4)]
        two = tamaki(options.build, options.out, 'Tamaki', names, 1)
        one = tamaki(options.build, options.out, 'Tamaki, one rail', names, 1, {'TAMAKI_INTERFACES': 'eth0'})
        measure([two, one], options.sizes, options)
        for size in options.sizes:
            report.claim('c', size, 'two rails against one', two.median(size), one.median(size), one.name, at_least=1.85)
        number = float(options.rate.rstrip('gmbit'))
        unit = options.rate[len(options.rate.rstrip('gmbit')):]
        quarter = f'{number / 4 * (1000 if unit == "gbit" else 1):.0f}mbit'
        for name in names:
            hosts('rate', name, 'eth1', quarter)
        slowed = tamaki(options.build, options.out, 'Tamaki', names, 1)
        peers = all_of_openmpi(options.out, names, 1, 'eth0,eth1', options.quick)
        measure([slowed, *peers], options.sizes, options)
        for size in options.sizes:
            peer, name = best(peers, size)
            report.claim('c', size, f'one rail at {quarter}, against Open MPI', slowed.median(size), peer, name, at_least=1.3)
    finally:
        hosts('down')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', required=True)
    parser.add_argument('--out')
    parser.add_argument('--json')
    parser.add_argument('--shapes', default='a,b,c,small')
    parser.add_argument('--sizes', default='1M,16M')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--rate', default='1gbit')
    parser.add_argument('--quick', action='store_true')
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.out = os.path.abspath(options.out or os.path.join(options.build, 'multihost'))
    options.prefix = os.environ.get('TEST_HOSTS', 'th')
    options.sizes = [parse_size(s) for s in options.sizes.split(',')]
    shapes = options.shapes.split(',')
    if unknown := set(shapes) - {'a', 'b', 'c', 'small'}:
        parser.error(f'--shapes: {", ".join(sorted(unknown))} is none of a, b, c, small')
    os.makedirs(options.out, exist_ok=True)
    compile_programs(options.build, options.out, ['openmpi'])
    report = Report()
    for shape in shapes:
        {'a': lambda: shape_a(options, report, False), 'small': lambda: shape_a(options, report, True),
         'b': lambda: shape_b(options, report), 'c': lambda: shape_c(options, report)}[shape]()
    if options.json:
        with open(options.json, 'w') as file:
            json.dump(report.rows, file, indent=1)
    sys.exit(3 if report.void and not report.rows else 1 if report.missed or report.void else 0)


if __name__ == '__main__':
    main()
