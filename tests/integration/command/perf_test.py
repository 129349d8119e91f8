"""tamaki perf: every collective checked on 1 to 5 ranks, joining of jobs, JSON, plot, errors."""
import json
import os
import shutil
import xml.etree.ElementTree as xml

import command
from command import CommandTest, tamaki

KINDS = ['allreduce', 'reduce', 'broadcast', 'allgather', 'reduce_scatter', 'gather', 'scatter', 'alltoall', 'barrier', 'sendrecv',
         'allgatherv', 'reduce_scatterv', 'gatherv', 'scatterv', 'alltoallv']
SHORT = ['-w', '1', '-i', '2', '-R', '1']
HAS_IN_PLACE = {'allreduce', 'reduce', 'broadcast', 'allgather', 'reduce_scatter', 'reduce_scatterv', 'gather', 'scatter', 'alltoall'}


class Collectives(CommandTest):
    def rows(self, *arguments, status=0):
        done = self.good(tamaki('perf', *arguments, '--json', '-'), status)
        return json.loads(done.stdout)['rows']

    def test_every_collective_is_right(self):
        for kind in KINDS:
            for ranks in range(1, 6):
                with self.subTest(kind=kind, ranks=ranks):
                    rows = self.rows(kind, '-n', ranks, '-b', 4, '-e', '20K', '-f', 70, '--root', ranks - 1, '--check', '-u', 3, *SHORT)
                    self.assertEqual(len(rows), 1 if kind == 'barrier' else 3)
                    for row in rows:
                        self.assertEqual(row['out_of_place']['wrong'], 0)
                        self.assertGreater(row['out_of_place']['us'], 0)
                        self.assertEqual(row['in_place'] is not None, kind in HAS_IN_PLACE)
                        if row['in_place']:
                            self.assertEqual(row['in_place']['wrong'], 0)

    def test_every_type_and_operation_is_right(self):
        for ranks in (1, 3):
            rows = self.rows('allreduce', '-n', ranks, '-b', 20000, '-e', 20000, '-t', 'all', '-o', 'all', '--check', *SHORT)
            # 8 integer types with 11 operations, 6 float types with 8, 2 complex types with 6, bytes with 3
            self.assertEqual(len(rows), 8 * 11 + 6 * 8 + 2 * 6 + 3)
            self.assertEqual(sum(r['out_of_place']['wrong'] + r['in_place']['wrong'] for r in rows), 0)

    def test_variants(self):
        for options in (['--memory', 'shared'], ['--transport', 'tcp'], ['--algorithm', 'ring'], ['--reproducible'],
                        ['--algorithm', 'recursive_doubling:0-8K,ring:8K-']):
            with self.subTest(options=options):
                rows = self.rows('allreduce', '-n', 3, '-b', '1K', '-e', '64K', '-f', 64, '--check', *SHORT, *options)
                self.assertEqual(sum(r['out_of_place']['wrong'] + r['in_place']['wrong'] for r in rows), 0)
                if options[0] == '--algorithm':
                    self.assertEqual([r['algorithm'] for r in rows], ['recursive_doubling' if ':' in options[1] else 'ring', 'ring'])

    def test_a_spoiled_bit_is_found(self):
        for kind in ('allreduce', 'alltoall', 'allgatherv', 'reduce_scatter'):
            with self.subTest(kind=kind):
                done = self.good(tamaki('perf', kind, '-n', 3, '-b', '1K', '-e', '1K', '--check', '--corrupt', 1, *SHORT), 1)
                self.assertIn('rank 1 on', done.stderr)
                self.assertIn('1 elements are wrong: element', done.stderr)
                self.assertRegex(done.stdout, r'# wrong elements: [12]\n')

    def test_sizes(self):
        self.assertEqual([r['bytes'] for r in self.rows('allreduce', '-n', 1, '-b', 8, '-e', 64, '-f', 2, *SHORT)], [8, 16, 32, 64])
        self.assertEqual([r['bytes'] for r in self.rows('allreduce', '-n', 1, '-b', 8, '-e', 40, '-s', 16, *SHORT)], [8, 24, 40])
        self.assertEqual([(r['bytes'], r['count']) for r in self.rows('allgather', '-n', 2, '-b', 4, '-e', 16, *SHORT)], [(8, 1), (16, 2)])


class Joining(CommandTest):
    def check(self, done, launcher, ranks):
        self.good(done)
        self.assertIn(f'# {ranks} ranks on', done.stdout)
        self.assertIn(f'started by {launcher}', done.stdout)
        self.assertIn('all results are right', done.stdout)
        self.assertEqual(done.stdout.count('# tamaki'), 1)

    def test_openmpi(self):
        if not shutil.which('mpirun.openmpi'):
            self.skipTest('mpirun.openmpi is not installed')
        self.check(tamaki('perf', 'allreduce', '-b', 64, '-e', 64, '--check', *SHORT, wrapper=['mpirun.openmpi', '--oversubscribe', '-n', '3']), 'Open MPI', 3)

    def test_mpich(self):
        if not shutil.which('mpirun.mpich'):
            self.skipTest('mpirun.mpich is not installed')
        self.check(tamaki('perf', 'allreduce', '-b', 64, '-e', 64, '--check', *SHORT, wrapper=['mpirun.mpich', '-n', '3']), 'MPICH/Hydra', 3)

    def test_tamaki_run(self):
        self.check(tamaki('perf', 'allreduce', '-b', 64, '-e', 64, '--check', *SHORT, wrapper=[command.TAMAKI, 'run', '-n', '3', '--no-tag', '--']), 'tamaki run', 3)

    def test_own_ranks_inside_another_job(self):
        if not shutil.which('mpirun.mpich'):
            self.skipTest('mpirun.mpich is not installed')
        self.check(tamaki('perf', 'allreduce', '-n', 2, '-b', 64, '-e', 64, '--check', *SHORT, wrapper=['mpirun.mpich', '-n', '1']), 'tamaki perf', 2)


class Files(CommandTest):
    def test_json_and_plot(self):
        done = self.good(tamaki('perf', 'allreduce', '-n', 2, '-b', 8, '-e', '64K', '-f', 8, '-t', 'f32,f64', '--json', self.path('j'), '--plot', self.path('p.svg'), *SHORT))
        with open(self.path('j')) as file:
            result = json.load(file)
        self.assertEqual((result['collective'], result['ranks'], len(result['hosts'])), ('allreduce', 2, 2))
        self.assertEqual(len(result['rows']), 10)
        for row in result['rows']:
            t = row['out_of_place']
            self.assertLessEqual(t['us_min'], t['us'])
            self.assertLessEqual(t['us'], t['us_max'])
            self.assertAlmostEqual(t['algbw'], row['bytes'] / t['us'] / 1e3, places=6)
            self.assertAlmostEqual(t['busbw'], t['algbw'], places=6)  # 2 (p - 1) / p = 1 for two ranks
            self.assertIn(row['algorithm'], done.stdout)
        tree = xml.parse(self.path('p.svg'))
        name = '{http://www.w3.org/2000/svg}'
        self.assertEqual(tree.getroot().tag, name + 'svg')
        self.assertEqual(len(tree.getroot().findall(f'.//{name}path[@class="line"]')), 8)  # 2 types, in and out, 2 panels
        self.assertEqual(len(tree.getroot().findall(f'.//{name}circle')), 2 * 2 * len(result['rows']))

    def test_a_file_that_cannot_be_written_is_known_before_anything_is_measured(self):
        with open(self.path('kept'), 'w') as file:
            file.write('before')
        for option, path in (('--json', '/no/such/folder/j'), ('--plot', '/no/such/folder/p'), ('--json', self.folder)):
            with self.subTest(option=option, path=path):
                # Measuring all that would take days.
                done = self.good(tamaki('perf', 'allreduce', '-n', 2, '-i', 10000000, '-R', 100000, option, path,
                                        '--plot' if option == '--json' else '--json', self.path('kept'), timeout=60), 3)
                self.assertIn(f'rank 0 on', done.stderr)
                self.assertIn(f'{option}: writing "{path}"', done.stderr)
                self.assertEqual(done.stderr.count('tamaki perf'), 1, done.stderr)
                self.assertEqual(done.stdout, '')
        self.assertEqual(open(self.path('kept')).read(), 'before')
        self.good(tamaki('perf', 'barrier', '-n', 1, '--json', self.path('new'), '--plot', '/no/such/folder/p', *SHORT), 3)
        self.assertEqual(os.listdir(self.folder), ['kept'])  # nothing empty is left

    def test_a_longer_file_is_replaced(self):
        with open(self.path('j'), 'w') as file:
            file.write('x' * 100000)
        self.good(tamaki('perf', 'barrier', '-n', 1, '--json', self.path('j'), *SHORT))
        with open(self.path('j')) as file:
            self.assertEqual(len(json.load(file)['rows']), 1)

    def test_a_plot_on_stdout_has_no_table_in_it(self):
        xml.fromstring(self.good(tamaki('perf', 'allreduce', '-n', 1, '-b', 8, '-e', 64, '--plot', '-', *SHORT)).stdout)

    def test_a_full_disk(self):
        self.assertIn('--json: writing "/dev/full"', self.good(tamaki('perf', 'barrier', '-n', 1, '--json', '/dev/full', *SHORT), 3).stderr)


class Errors(CommandTest):
    def test_usage(self):
        for arguments, text in ((['nothing'], 'there are allreduce'), (['allreduce', '-t', 'f33'], 'f33'), (['allreduce', '-o', 'mean'], 'mean'),
                                (['allreduce', '-b', '2K', '-e', '1K'], 'larger'), (['allreduce', '-b', 'x'], '"x"'), (['allreduce', '-i', '0'], '--iterations'),
                                (['allreduce', '-t', 'c64', '-o', 'min'], 'no meaning'), (['allreduce', '--bogus'], '--bogus'), ([], 'collective'),
                                (['allreduce', '-s', '0'], '-s'), (['broadcast', '-n', '2', '--root', '2'], '--root 2'),
                                (['allreduce', '-n', '2', '--algorithm', 'nothing'], 'ring'), (['allreduce', '-n', '2', '--transport', 'pigeon'], 'pigeon')):
            with self.subTest(arguments=arguments):
                self.assertIn(text, self.good(tamaki('perf', *arguments), 2).stderr)

    def test_numbers_that_are_none(self):
        for option, bad, span in (('--factor', ('nan', 'inf', '1', '-2', '0', 'x', ''), '1.01..1000000'), ('--iterations', ('0', '-1', '1.5', 'nan', ''), '1..10000000'),
                                  ('--ranks', ('0', '-1', 'x', '16777217'), '1..16777216'), ('--repetitions', ('0', '1e3'), '1..100000'), ('--warm-up', ('-1',), '0..1000000'),
                                  ('--root', ('-1', 'x'), '0..16777215'), ('--unaligned', ('4096', '-1'), '0..4095'), ('--timeout-ms', ('0', 'inf'), '1..2147483647')):
            for text in bad:
                with self.subTest(option=option, text=text):
                    done = self.good(tamaki('perf', 'allreduce', option, text), 2)
                    self.assertIn(f'tamaki perf: {option}: "{text}" is not', done.stderr)
                    self.assertIn(span, done.stderr)
        for option in ('-b', '-e', '-s'):
            for text in ('-5', 'nan', '4KK', '1E', '99999999999999999999'):
                with self.subTest(option=option, text=text):
                    done = self.good(tamaki('perf', 'allreduce', option, text), 2)
                    self.assertIn(f'{option}: "{text}" is not', done.stderr)
                    self.assertIn('..1P', done.stderr)

    def test_what_is_empty_or_makes_no_sense_together(self):
        for arguments, text in ((['-s', ''], '--step'), (['-t', ','], '","'), (['--hosts', ''], '--hosts'), (['--json', ''], '--json'), (['--plot', ''], '--plot'),
                                (['--transport', ''], '--transport'), (['--transport', 'shm,'], 'inproc, shm, tcp'), (['--algorithm', ''], '--algorithm'),
                                (['--json', 'x', '--plot', 'x'], 'both write to "x"'), (['--json', '-', '--plot', '-'], 'both write to stdout'),
                                (['-b', '1', '-e', '1P', '-s', '1'], 'at most 100000'), (['-b', '1G'], '-e 64M (its default)'), (['--rsh', 'ssh'], '--rsh requires --hosts'),
                                (['-n', '2', '--hosts', 'a:1'], '--hosts "a:1": 2 ranks do not fit'), (['-n', '2', '--algorithm', 'ring:9-8'], '--algorithm: ')):
            with self.subTest(arguments=arguments):
                self.assertIn(text, self.good(tamaki('perf', 'allreduce', *arguments), 2).stderr)

    def test_a_type_given_twice_counts_once(self):
        done = self.good(tamaki('perf', 'allreduce', '-n', 1, '-b', 8, '-e', 8, '-t', 'f32,f64,f32', '-o', 'sum,sum', '--json', '-', *SHORT))
        self.assertEqual([r['type'] for r in json.loads(done.stdout)['rows']], ['f32', 'f64'])

    def test_more_than_the_machine_holds(self):
        done = self.good(tamaki('perf', 'allreduce', '-n', 2, '-b', '1P', '-e', '1P', *SHORT), 3)
        self.assertIn('two buffers of 1125899906842624 bytes for each of 2 ranks', done.stderr)

    def test_a_setting_that_is_wrong(self):
        done = self.good(tamaki('perf', 'allreduce', '-n', 2, '-e', 64, environment={'TAMAKI_TIMEOUT_MS': 'soon'}), 2)
        self.assertIn('TAMAKI_TIMEOUT_MS="soon"', done.stderr)

    def test_a_rank_that_dies_ends_the_job_with_the_others_errors(self):
        # Rank 1 is killed by a timer; the others are in the middle of a sweep.
        script = self.script('p', f'#!/bin/sh\n[ $TAMAKI_RANK = 1 ] && exec timeout -s KILL 1 {command.TAMAKI} "$@"\nexec {command.TAMAKI} "$@"\n')
        done = tamaki('run', '-n', 3, '--no-tag', '--linger', 10, '--', script, 'perf', 'allreduce', '-b', '1M', '-e', '1M', '-R', 100000)
        self.assertEqual(done.returncode, 137, done.stderr)
        self.assertRegex(done.stderr, r'tamaki perf: rank [02] on .*rank 1')


if __name__ == '__main__':
    command.main()
