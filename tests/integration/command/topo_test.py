"""tamaki topo: machines, pictures, placements, and what is refused."""
import json
import os
import xml.etree.ElementTree as xml

import command
from command import CommandTest, tamaki

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'fixtures', 'topology')
NAMES = ('fugaku', 'fugaku:48x6x48', 'sakuraone', 'eos', 'dgx_h100', 'laptop', 'torus:4x4x2m', 'mesh:4x4', 'hosts:4x2', 'rails:100x8')


class Show(CommandTest):
    def test_this_machine(self):
        text = self.good(tamaki('topo', '--json', self.path('m.json'), '--svg', self.path('m.svg'), '--xml', self.path('m.xml'), '--sources')).stdout
        self.assertRegex(text, r': 1 host, \d+ slots?\n')
        self.assertIn('sources:', text)
        self.assertEqual(xml.parse(self.path('m.svg')).getroot().tag, '{http://www.w3.org/2000/svg}svg')
        self.assertEqual(xml.parse(self.path('m.xml')).getroot().tag, 'system')
        again = self.good(tamaki('topo', self.path('m.json'))).stdout
        self.assertEqual(text[:text.index('sources:')], again)

    def test_every_machine_is_drawn_and_goes_round(self):
        for name in NAMES:
            text = self.good(tamaki('topo', name, '--json', self.path('m.json'), '--svg', self.path('m.svg'))).stdout
            self.assertEqual(xml.parse(self.path('m.svg')).getroot().tag, '{http://www.w3.org/2000/svg}svg')
            with open(self.path('m.json')) as file:
                self.assertEqual(json.load(file)['format'], 'tamaki-machine-1')
            self.assertEqual(self.good(tamaki('topo', self.path('m.json'))).stdout, text, name)
            # Notes are kept too: written again, the description is the same.
            with open(self.path('m.json')) as file:
                self.assertEqual(self.good(tamaki('topo', self.path('m.json'), '--json', '-')).stdout, file.read())

    def test_fixtures(self):
        for name, part in (('dgx_h100.hwloc.xml', '8 GPUs'), ('dgx_h100.nccl.xml', 'NVLink 450 GB/s'), ('a64fx.hwloc.xml', '4 NUMA domains, 48 cores'),
                           ('epyc_nps4.hwloc.xml', '8 NUMA domains'), ('laptop.hwloc.xml', '4 cores')):
            self.assertIn(part, self.good(tamaki('topo', os.path.join(FIXTURES, name))).stdout)

    def test_list(self):
        lines = self.good(tamaki('topo', '--list')).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ['dgx_h100', 'eos', 'fugaku', 'fugaku_bine', 'fugaku_mpi', 'laptop', 'sakuraone'])

    def test_sources(self):
        text = self.good(tamaki('topo', 'sakuraone', '--sources')).stdout
        self.assertRegex(text, r'fabric.spines +assumption: ')
        self.assertRegex(text, r'hosts +source: .*arXiv')


class Ranks(CommandTest):
    def test_communicators(self):
        for arguments, what in ((['fugaku:48x6x48', '-n', 13824], '48x6x48 torus\n'), (['torus:8x8x8', '--members', '0-7,64-71'], '2mx8 torus\n'),
                                (['torus:4x4', '--members', '0,2,1,3'], '4 torus, permuted\n'), (['sakuraone', '--members', '3,11,19'], '3 ranks of rail 3\n'),
                                (['sakuraone', '-n', 16], '2 hosts of 8 ranks on 8 rails\n'), (['hosts:4x2', '-n', 3], 'no structure: 2 hosts have 1 to 2 ranks\n')):
            self.assertIn(what, self.good(tamaki('topo', *arguments)).stdout)

    def test_placements_go_both_ways(self):
        for option in ('--vcoord', '--rankfile', '--hostlist'):
            first = self.good(tamaki('topo', 'fugaku:4x6x4', '--order', 'first', option, self.path('p'))).stdout
            again = self.good(tamaki('topo', 'fugaku:4x6x4', '--placement', self.path('p'))).stdout
            self.assertEqual(first, again, option)
        with open(self.path('p')) as file:
            self.assertEqual(len(file.readlines()), 96)

    def test_groups_of_training(self):
        text = self.good(tamaki('topo', 'fugaku:48x6x48', '--parallel', '6x8x288', '--colour', 'dp', '--svg', self.path('g.svg'))).stdout
        self.assertIn('TP: 2304 groups of 6: 6 mesh\n', text)
        self.assertIn('PP: 1728 groups of 8: 8 torus\n', text)
        fills = {e.get('fill') for e in xml.parse(self.path('g.svg')).iter('{http://www.w3.org/2000/svg}rect')}
        self.assertGreater(len(fills), 40)  # 48 groups
        text = self.good(tamaki('topo', 'sakuraone', '--parallel', '8x1x100')).stdout
        self.assertIn('TP: 100 groups of 8: 8 ranks of one host in 2 NUMA domains\n', text)
        self.assertIn('100 ranks of rail 7', text)


class Refusals(CommandTest):
    def write(self, name, text):
        with open(self.path(name), 'w') as file:
            file.write(text)
        return self.path(name)

    def test_usage(self):
        for arguments, text in ((['nothing'], 'there is no such machine'), (['torus:4xx4'], 'is no shape'), (['hosts:4x2', '-n', '9'], 'it has 8 slots'), (['hosts:4x2', '-n', '0'], '--ranks'),
                                (['hosts:4x2', '--members', '0-8'], 'not in 0..7'), (['hosts:4x2', '--members', '1,1'], 'rank 1 is there twice'), (['hosts:4x2', '--order', 'x'], '--order'),
                                (['hosts:4x2', '-n', '8', '--order', 'first'], 'it is no torus'), (['hosts:4x2', '--parallel', '2x2'], 'TPxPPxDP'), (['hosts:4x2', '--parallel', '2x2x3'], '12 ranks; 8 are placed'),
                                (['hosts:4x2', '--parallel', '2x2x2', '--parallel-order', 'tp-pp'], 'must be tp, pp and dp'), (['hosts:4x2', '--colour', 'tp'], '--parallel'),
                                (['hosts:4x2', '--json', '-', '--svg', '-'], 'two outputs')):
            self.assertIn(text, self.good(tamaki('topo', *arguments), 2).stderr)
        for arguments, text in ((['/no/such/machine.json'], '/no/such/machine.json: No such file'), (['hosts:4x2', '--placement', '/no/such'], '/no/such: No such file'), (['/'], 'is a folder')):
            self.assertIn(text, self.good(tamaki('topo', *arguments), 3).stderr)

    def test_wrong_files_name_file_line_and_field(self):
        head = '{"format": "tamaki-machine-1", "name": "x",\n'
        for text, where in ((head + '"hosts": 1000000}', 'f.json:2: hosts: 1000000 is not in'), (head + '"fabric": {"kind": "switch",\n"link_bandwidth": -1}}', 'f.json:3: fabric.link_bandwidth: '),
                            (head + '"hosts": "x"}', 'f.json:2: hosts: '), (head, 'f.json:2: '), ('', 'f.json:1: is empty')):
            self.assertIn(where, self.good(tamaki('topo', self.write('f.json', text)), 2).stderr)
        self.assertIn('f.xml:2: ', self.good(tamaki('topo', self.write('f.xml', '<system>\n<cpu>')), 2).stderr)
        self.assertIn('p:2: coordinate 4', self.good(tamaki('topo', 'torus:4x4', '--placement', self.write('p', '(0,0)\n(4,0)\n')), 2).stderr)

    def test_folders_and_circles(self):
        self.write('a.json', '{"format": "tamaki-machine-1", "name": "a", "host": {"like": "b"}}')
        self.write('b.json', '{"format": "tamaki-machine-1", "name": "b",\n"host": {"like": "a"}}')
        self.write('c.json', '{"format": "tamaki-machine-1", "name": "mine", "hosts": 3, "host": {"like": "dgx_h100", "slots": 4}}')
        self.write('laptop.json', '{"format": "tamaki-machine-1", "name": "other", "hosts": 7}')
        environment = {'TAMAKI_CLUSTERS': '/nowhere:' + self.folder}
        self.assertIn('goes in a circle', self.good(tamaki('topo', 'a', environment=environment), 2).stderr)
        self.assertIn('mine: 3 hosts, 12 slots\n', self.good(tamaki('topo', 'c', environment=environment)).stdout)
        self.assertIn('other: 7 hosts', self.good(tamaki('topo', 'laptop', environment=environment)).stdout)
        self.assertIn('there is no description', self.good(tamaki('topo', self.write('d.json', '{"format": "tamaki-machine-1", "name": "d", "host": {"like": "q"}}')), 2).stderr)


if __name__ == '__main__':
    command.main()
