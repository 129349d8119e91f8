"""tamaki verify, draw and print."""
import json
import xml.etree.ElementTree as xml

import command
from command import CommandTest, tamaki


class Verify(CommandTest):
    def test_report(self):
        done = self.good(tamaki('verify', '--collective', 'allreduce,barrier', '--ranks', '1..9', '--json', self.path('j')))
        self.assertIn('allreduce       ring', done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], r'^\d+ algorithms, \d+ problems, \d+ proofs: all proved$')
        with open(self.path('j')) as file:
            algorithms = json.load(file)['algorithms']
        self.assertEqual({a['collective'] for a in algorithms}, {'allreduce', 'barrier'})
        self.assertTrue(all(a['findings'] == [] and a['proofs'] >= a['problems'] > 0 for a in algorithms))

    def test_all_roots(self):
        def problems(*extra):
            return json.loads(self.good(tamaki('verify', '--collective', 'broadcast', '--algorithm', 'knomial', '--ranks', '13', '--json', '-', *extra)).stdout)['algorithms'][0]['problems']
        self.assertGreaterEqual(problems('--roots', 'all'), max(13, problems()))

    def test_mutants(self):
        done = self.good(tamaki('verify', '--collective', 'allreduce', '--algorithm', 'ring,recursive_doubling', '--ranks', '2,3', '--mutants', 200, '--json', self.path('j')))
        with open(self.path('j')) as file:
            mutants = json.load(file)['mutants']
        self.assertEqual(sum(m['rejected'] + m['unchanged'] + len(m['equivalent']) for m in mutants), 200)
        self.assertGreater(sum(m['rejected'] for m in mutants), 120)
        for m in mutants:
            if m['kind'] in ('drop_step', 'wrong_peer', 'wrong_chunk'):
                self.assertEqual(m['equivalent'], [])
            self.assertEqual(m['missed'], [])
        self.assertIn('mutants: ', done.stdout)

    def test_a_mutant_that_the_proof_should_not_have_accepted(self):
        arguments = ['verify', '--collective', 'allreduce', '--algorithm', 'ring,recursive_doubling', '--ranks', '2', '--mutants', 60, '--json', self.path('j')]
        sharp = self.good(tamaki(*arguments))
        with open(self.path('j')) as file:
            rejected = sum(m['rejected'] for m in json.load(file)['mutants'])
        self.assertEqual(sharp.stderr, '')
        blind = self.good(tamaki(*arguments, '--blind'), 1)  # the proof accepts what it rejected above
        with open(self.path('j')) as file:
            mutants = json.load(file)['mutants']
        missed = [text for m in mutants for text in m['missed']]
        self.assertGreater(len(missed), 20)
        self.assertEqual(len(missed) + sum(m['rejected'] for m in mutants), rejected)  # both find the same ones
        self.assertEqual(blind.stderr.count('DEFECT OF THE PROOF: it accepts allreduce '), len(missed))
        self.assertIn(f'{len(missed)} ACCEPTED THOUGH WRONG', blind.stdout)
        self.assertTrue(all('the interpreter finds: ' in text for text in missed))

    def test_a_broken_schedule_is_found(self):
        self.good(tamaki('print', 'allreduce', 'ring', '-n', 3, '--form', 'json', '-o', self.path('good')))
        self.good(tamaki('verify', '--file', self.path('good')))
        with open(self.path('good')) as file:
            schedule = json.load(file)
        schedule['programs'][1]['lanes'][0].pop()  # the last receive
        with open(self.path('bad'), 'w') as file:
            json.dump(schedule, file)
        done = self.good(tamaki('verify', '--file', self.path('bad'), '--json', self.path('j')), 1)
        self.assertRegex(done.stdout, r'rank [012]')
        with open(self.path('j')) as file:
            self.assertIn(json.load(file)['findings'][0], done.stdout)

    def test_usage(self):
        for arguments, text in ((['--ranks', '0'], '1..65535'), (['--ranks', '3..2'], '3..2'), (['--ranks', ''], '--ranks'), (['--ranks', ','], '","'),
                                (['--collective', 'x'], 'there are allreduce'), (['--algorithm', 'x'], 'there are'), (['--ranks', '2', '--file', 'x'], '--file'),
                                (['--seed', '2'], '--seed requires --mutants'), (['--mutants', '-1'], '0..10000000'), (['--jobs', '0'], '1..4096'),
                                (['--ranks', '7', '--collective', 'allgather', '--algorithm', 'recursive_doubling'], 'power of two')):
            with self.subTest(arguments=arguments):
                self.assertIn(text, self.good(tamaki('verify', *arguments), 2).stderr)

    def test_files_that_cannot_be_used(self):
        self.assertIn('/no/such/file', self.good(tamaki('verify', '--file', '/no/such/file'), 3).stderr)
        self.assertIn('Is a directory', self.good(tamaki('verify', '--file', self.folder), 3).stderr)
        done = self.good(tamaki('verify', '--json', '/no/such/folder/j', timeout=20), 3)
        self.assertIn('--json: writing "/no/such/folder/j"', done.stderr)
        self.assertEqual(done.stdout, '')  # before anything is proved

    def test_more_than_the_machine_holds(self):
        self.assertIn('the proof of allreduce ring, 65535 ranks: ', self.good(tamaki('verify', '--ranks', 65535, '--algorithm', 'ring', '--collective', 'allreduce'), 3).stderr)
        self.assertIn('the schedule of 65535 ranks: ', self.good(tamaki('print', 'alltoall', 'direct', '-n', 65535), 3).stderr)


class Pictures(CommandTest):
    def test_draw(self):
        self.good(tamaki('draw', 'allreduce', 'ring', '-n', 4, '--lanes', 2, '-o', self.path('a.svg')))
        self.assertEqual(xml.parse(self.path('a.svg')).getroot().tag, '{http://www.w3.org/2000/svg}svg')
        done = self.good(tamaki('draw', 'broadcast', 'knomial', '-n', 5, '--root', 3))
        xml.fromstring(done.stdout)

    def test_print_and_back(self):
        text = self.good(tamaki('print', 'allreduce', 'ring', '-n', 4, '--rank', 1)).stdout
        self.assertTrue(text.startswith('allreduce ring: rank 1 of 4, 4 chunks\n'))
        self.assertIn('recv_reduce_send', text)
        self.good(tamaki('print', 'allreduce', 'ring', '-n', 4, '--form', 'json', '-o', self.path('j')))
        whole = self.good(tamaki('print', 'allreduce', 'ring', '-n', 4)).stdout
        self.assertEqual(self.good(tamaki('print', '--file', self.path('j'))).stdout, whole)
        self.assertEqual(self.good(tamaki('draw', '--file', self.path('j'))).stdout, self.good(tamaki('draw', 'allreduce', 'ring', '-n', 4)).stdout)

    def test_refusals(self):
        for arguments, text in ((['draw'], 'must be given'), (['draw', 'allreduce', 'ring', '-n', '100'], 'at most 64 ranks'), (['print', 'allreduce', 'ring', '-n', '2000'], '--compact'),
                                (['draw', 'allreduce', 'ring,chain'], 'names 2 schedules'), (['draw', 'allreduce', '--file', 'x'], '--file'), (['print', '--file', 'x', '-n', '3'], '--file'),
                                (['draw', 'allreduce', 'ring', '--lanes', '0'], '1..64'), (['draw', 'allreduce', 'ring', '-o', ''], '--output'), (['print', 'allreduce', 'ring', '--rank', '-1'], '0..65534'),
                                (['draw', 'allreduce', 'nothing'], 'there are'), (['draw', 'reduce', 'knomial', '-n', '4', '--root', '4'], 'root 4 is not in 0..3'),
                                (['print', 'allreduce', 'ring', '-n', '4', '--rank', '4'], '--rank 4'), (['print', 'allgather', 'recursive_doubling', '-n', '6'], '6 ranks')):
            done = self.good(tamaki(*arguments), 2)
            self.assertIn(text, done.stderr)

    def test_garbage_files(self):
        for text in ('', '{', '[]', '{"format": "tamaki-schedule-1", "programs": [{}]}', 'x' * 10000):
            with open(self.path('g'), 'w') as file:
                file.write(text)
            self.assertIn(self.path('g'), self.good(tamaki('draw', '--file', self.path('g')), 2).stderr)


if __name__ == '__main__':
    command.main()
