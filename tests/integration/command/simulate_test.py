"""tamaki simulate: tables, files, faults, what is refused; and the comparison with what was measured on Fugaku."""
import json
import os
import sys
import xml.etree.ElementTree as xml

import command
from command import CommandTest, tamaki

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..', 'perf_tests'))
import fugaku  # noqa: E402

SVG = '{http://www.w3.org/2000/svg}svg'


class Simulate(CommandTest):
    def results(self, *arguments):
        document = json.loads(self.good(tamaki('simulate', *arguments, '--json', '-')).stdout)
        return {(r['algorithm'], r['bytes']): r for r in document['results']}, document

    def test_table(self):
        text = self.good(tamaki('simulate', '--cluster', 'torus:5x5', '--bytes', '1K..1G*32')).stdout
        self.assertIn('torus:5x5: allreduce, 25 ranks (5x5 torus)\n', text)
        self.assertRegex(text, r'\n +1G torus .* ms .*% \*')
        self.assertRegex(text, r'\nrail: needs ')
        self.assertRegex(text, r'\nup to \S+ \w+, above torus\n')

    def test_json_adds_up(self):
        results, document = self.results('--cluster', 'torus:8x8', '--bytes', '1M,16M', '--algorithm', 'torus,ring', '--lanes', '1')
        self.assertEqual(len(results), 4)
        for r in results.values():
            self.assertAlmostEqual(r['algorithm_gbs'], r['bytes'] / r['seconds'] / 1e9, delta=1e-6 * r['algorithm_gbs'])
            self.assertAlmostEqual(r['bus_gbs'], r['algorithm_gbs'] * 2 * 63 / 64, delta=1e-6 * r['bus_gbs'])
            self.assertLessEqual(r['bound_s'], r['seconds'])
            self.assertLessEqual(r['busiest_share'], 1.000001)
        self.assertEqual(results['ring', 1 << 20]['steps'], 126)
        self.assertLess(results['torus', 16 << 20]['seconds'], results['ring', 16 << 20]['seconds'])
        self.assertEqual(document['ranks'], 64)

    def test_files(self):
        self.good(tamaki('simulate', '--cluster', 'rails:2x4', '--bytes', '1M..64M', '--plot', self.path('p.svg'), '--heatmap',
                         self.path('h.svg'), '--trace', self.path('t.json')))
        self.assertEqual(xml.parse(self.path('p.svg')).getroot().tag, SVG)
        self.assertEqual(xml.parse(self.path('h.svg')).getroot().tag, SVG)
        with open(self.path('t.json')) as file:
            events = json.load(file)['traceEvents']
        self.assertTrue(any(e['ph'] == 'X' and e['name'].startswith('to ') for e in events))
        self.assertEqual({e['pid'] for e in events}, set(range(8)))
        self.assertTrue(all(e['dur'] >= 0 for e in events if e['ph'] == 'X'))

    def test_faults(self):
        time = lambda *more: self.results('--cluster', 'torus:8', '--algorithm', 'ring', '--lanes', '1', '--bytes', '8M', '--network-only', *more)[0]['ring', 8 << 20]['seconds']
        whole = time()
        self.assertAlmostEqual(time('--slow-link', 'axis 0 + (3)=0.25') / whole, 4, delta=0.1)
        self.assertAlmostEqual(time('--slow-link', 'axis 0 + (3)=0') / whole, 1, delta=0.1)
        self.assertAlmostEqual(time('--slow-host', '2=0.5') / whole, 2, delta=0.1)

    def test_orders(self):
        def ring(*more):
            results, _ = self.results('--cluster', 'rails:8x4', '--algorithm', 'ring', '--lanes', '1', '--bytes', '64M', *more)
            return results['ring', 64 << 20]['seconds']
        chance = ring('--order', 'random', '--seed', '3')
        self.assertGreater(chance, 1.5 * ring())  # many neighbours are on other hosts and rails
        self.assertEqual(chance, ring('--order', 'random', '--seed', '3'))
        self.assertNotEqual(chance, ring('--order', 'random', '--seed', '4'))
        _, document = self.results('--cluster', 'torus:4x3', '--algorithm', 'ring', '--order', 'first')
        self.assertEqual(document['structure'], '3x4 torus')
        done = tamaki('simulate', '--cluster', 'hosts:2x2', '--order', 'first')
        self.assertEqual(done.returncode, 2)
        self.assertIn('--order first: ranks along the first dimension of hosts:2x2: it is no torus', done.stderr)

    def test_groups_at_once(self):
        def placements(*more):
            arguments = ('simulate', '--cluster', 'torus:4x6x4', '--bytes', '1M', '--slices', '1', '--algorithm', 'torus,ring',
                         '--pieces', '1', '--network-only', '--parallel', '6x4x4', *more)
            return json.loads(self.good(tamaki(*arguments, '--json', '-')).stdout)['placements']
        best = lambda placement: min(r['seconds'] for r in placement['results'])
        given, found = placements('--order', 'first', '--groups', 'tp')
        self.assertEqual(given['groups'], 16)
        self.assertEqual(given['ranks'], 6)
        self.assertIn('16 groups of 6: 6 torus', found['where'])
        self.assertLess(best(found), 0.6 * best(given))  # ranks that come along X are on two lines
        everywhere = placements('--order', 'first', '--groups', 'tp', '--placement', 'all')
        self.assertGreater(len(everywhere), 2)
        self.assertEqual(min(map(best, everywhere[1:])), best(found))
        stages, = placements('--groups', 'pp', '--placement', 'given')
        self.assertAlmostEqual(best(stages), (1 << 20) / 1.25e9, delta=2e-6)  # one link each
        for arguments, words in ((('--parallel', '6x4'), '--parallel "6x4": it takes TPxPPxDP'),
                                 (('--parallel', '6x4x5'), '6x4x5 are 120 ranks; 96 are placed'),
                                 (('--groups', 'tp'), '--parallel')):
            done = tamaki('simulate', '--cluster', 'torus:4x6x4', *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)

    def test_big_machine(self):
        results, document = self.results('--cluster', 'fugaku:48x6x48', '--algorithm', 'torus', '--pieces', '8', '--slices', '1', '--bytes', '1G', '--network-only')
        self.assertEqual(document['ranks'], 13824)
        one = results['torus', 1 << 30]
        self.assertGreaterEqual(one['bound_s'] / one['seconds'], 0.96)  # of six engines
        self.assertLess(one['simulated_messages'], 1_000_000)

    def test_what_is_refused(self):
        for arguments, words in ((('--cluster', 'torus:0x3'), 'torus:0x3'),
                                 (('--cluster', 'torus:4x4', '--bytes', '1G..1K'), 'the end is before the beginning'),
                                 (('--cluster', 'torus:4x4', '--bytes', 'much'), '"much"'),
                                 (('--cluster', 'torus:4x4', '--algorithm', 'rings'), 'unknown algorithm "rings"'),
                                 (('--cluster', 'torus:4x4', '-n', '17'), 'slots'),
                                 (('--cluster', 'torus:4x4', '--root', '16'), '--root 16'),
                                 (('--cluster', 'torus:4x4', '--slices', '0'), '--slices'),
                                 (('--cluster', 'torus:4x4', '--slow-link', 'x'), 'must end in = and a factor'),
                                 (('--cluster', 'torus:4x4', '--slow-link', 'x=0.5'), 'no link of torus:4x4 is named "x"'),
                                 (('--cluster', 'torus:4x4', '--slow-host', '99=0.5'), 'host 99')):
            done = tamaki('simulate', *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)
        self.assertEqual(tamaki('simulate', '--cluster', 'hosts:2x2', '--algorithm', 'swing').returncode, 2)
        self.assertEqual(tamaki('simulate', '--cluster', 'hosts:2x2', '--json', '/nonexistent/x').returncode, 3)


class Measured(CommandTest):
    """Figures of docs/simulator.md; the bounds are what the simulator is meant to keep to."""

    def test_fugaku(self):
        simulator = fugaku.Simulator(command.TAMAKI)
        self.addCleanup(simulator.close)
        points = fugaku.compare(simulator, fugaku.load())
        large = [p for p in points if p.bytes >= 1 << 20]
        self.assertGreater(len(large), 120)
        for collective in ('allreduce', 'allgather', 'reduce_scatter'):
            part = [p for p in large if p.pair.collective == collective]
            self.assertLessEqual(fugaku.median_error(part), 0.15, collective)
            self.assertLessEqual(fugaku.median_error([p for p in part if p.shape != fugaku.FITTED]), 0.16, collective)
        self.assertLessEqual(fugaku.median_error([p for p in points if p.bytes < 1 << 20]), 0.30)
        right, both = fugaku.order(points)
        self.assertGreater(both, 300)
        self.assertGreaterEqual(right / both, 0.9)


if __name__ == '__main__':
    command.main()
