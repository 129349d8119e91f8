"""tamaki explain and perf --tune: choices, their reasons, tuning tables."""
import json
import os
import tempfile

import command
from command import CommandTest, tamaki


class Refusals(CommandTest):
    def refused(self, done, text):
        self.good(done, 2)
        self.assertIn(text, done.stderr)


class Explain(Refusals):
    def answers(self, *arguments):
        return json.loads(self.good(tamaki('explain', *arguments, '--json', '-')).stdout)

    def test_one_size_lists_all(self):
        text = self.good(tamaki('explain', 'allreduce', '--bytes', '64M', '--cluster', 'torus:4x4x4')).stdout
        self.assertIn('allreduce on torus:4x4x4: 64 ranks (4x4x4 torus)\n', text)
        self.assertRegex(text, r'\n64M: torus .*: (the least time of those that can serve|preferred among)')
        self.assertRegex(text, r'\n\* torus ')
        self.assertRegex(text, r'\n  ring ')
        self.assertRegex(text, r'\n  rail +no: needs ')

    def test_the_choice_is_the_cheapest(self):
        for at in self.answers('allreduce', '--bytes', '1K..64M*8', '--cluster', 'rails:4x4')['answers']:
            able = [c for c in at['considered'] if 'refused' not in c]
            self.assertGreater(len(able), 8)
            self.assertLessEqual(at['chosen']['seconds'], 1.05 * min(c['seconds'] for c in able))
            self.assertEqual(at['chosen']['origin'], 'simulated')

    def test_where_the_choice_changes(self):
        text = self.good(tamaki('explain', 'allreduce', '--bytes', '1K..64M*4', '--cluster', 'torus:8x8')).stdout
        self.assertRegex(text, r'\nfrom +\S+ on: torus .*instead of ')

    def test_rules_decide(self):
        at = self.answers('allreduce', '--bytes', '1G', '--cluster', 'torus:4x4', '--rules', 'ring:100M-')['answers'][0]
        self.assertEqual(at['chosen']['algorithm'], 'ring')
        self.assertEqual(at['why'], 'a rule of --rules says so')
        result = tamaki('explain', 'allreduce', '--bytes', '1G', '--cluster', 'torus:4x4', environment={'TAMAKI_ALLREDUCE': 'ring'})
        self.assertIn('a rule of TAMAKI_ALLREDUCE says so', self.good(result).stdout)

    def test_saved_times_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'tuning.json')
            before = self.answers('broadcast', '--bytes', '1M', '--cluster', 'hosts:3x2', '--save', path)
            with open(path) as file:
                table = json.load(file)
            self.assertTrue(all(row['origin'] == 'simulated' and row['ranks'] == 6 for row in table['rows']))
            for row in table['rows']:
                row['origin'] = 'measured'  # as if they had been, and one were good
                if row['algorithm'] == 'knomial':
                    row['seconds'] = [s / 1000 for s in row['seconds']]
            with open(path, 'w') as file:
                json.dump(table, file)
            after = self.answers('broadcast', '--bytes', '1M', '--cluster', 'hosts:3x2', '--tuning', path)['answers'][0]
            self.assertNotEqual(before['answers'][0]['chosen']['algorithm'], 'knomial')
            self.assertEqual(after['chosen']['algorithm'], 'knomial')
            self.assertEqual(after['chosen']['origin'], 'measured')

    def test_wrong_usage(self):
        self.refused(tamaki('explain', 'allreduced'), 'allreduced')
        self.refused(tamaki('explain', 'allreduce', '--cluster', 'nowhere'), '--cluster')
        self.refused(tamaki('explain', 'allreduce', '--bytes', '1Q'), '--bytes: "1Q"')
        self.refused(tamaki('explain', 'allreduce', '--rules', 'rings'), '--rules')
        self.refused(tamaki('explain', 'broadcast', '--root', '9', '-n', '4'), '--root 9 is not in 0..3')
        with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
            file.write('{"format": 3}')
            file.flush()
            self.refused(tamaki('explain', 'allreduce', '-n', '2', '--tuning', file.name), file.name)


class Tune(Refusals):
    def test_tuned_jobs_choose_by_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'tuning.json')
            text = self.good(tamaki('perf', 'reduce', '-n', '3', '-b', '1K', '-e', '16K', '-f', '4', '-w', '1', '-i', '3', '-R', '1', '--tune', path)).stdout
            self.assertRegex(text, r'# reduce, 3 ranks on .*shm')
            self.assertRegex(text, r'\n +1024? +\S+ ')
            with open(path) as file:
                table = json.load(file)
            rows = [row for row in table['rows'] if row['collective'] == 'reduce']
            self.assertGreater(len(rows), 4)
            self.assertTrue(all(row['origin'] == 'measured' for row in rows))
            self.assertTrue(any(len(row['bytes']) == 3 for row in rows))
            for row in rows:  # one is made the best by far
                if row['algorithm'] == 'chain' and row['pieces'] == 1:
                    row['seconds'] = [1e-9 for _ in row['seconds']]
            with open(path, 'w') as file:
                json.dump(table, file)
            run = tamaki('perf', 'reduce', '-n', '3', '-b', '1K', '-e', '1K', '-i', '1', environment={'TAMAKI_TUNING': path})
            self.assertRegex(self.good(run).stdout, r'\n +10\d\d .* chain ')
            run = tamaki('perf', 'reduce', '-n', '3', '-b', '1K', '-e', '1K', '-i', '1', environment={'TAMAKI_TUNING': 'off'})
            self.assertNotRegex(self.good(run).stdout, r'\n +10\d\d .* chain ')

    def test_a_broken_table_is_a_warning(self):
        with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
            file.write('{"format": ')
            file.flush()
            run = tamaki('perf', 'allreduce', '-n', '2', '-b', '8', '-e', '8', '-i', '1', environment={'TAMAKI_TUNING': file.name})
            self.assertIn(file.name, self.good(run).stderr)
            self.assertIn('no tuning table is used', run.stderr)

    def test_wrong_usage(self):
        self.refused(tamaki('perf', 'allgatherv', '-n', '2', '--tune', 'x'), 'allgatherv has no candidates')
        self.refused(tamaki('perf', 'allreduce', '-n', '2', '--tune', 'x', '-t', 'all'), 'one type')
        self.refused(tamaki('perf', 'allreduce', '-n', '2', '--tune', 'x', '--check'), '--check')


if __name__ == '__main__':
    command.main()
