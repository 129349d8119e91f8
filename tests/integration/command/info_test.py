"""tamaki info, help, version and exit statuses."""
import json

import command
from command import CommandTest, tamaki

SUBCOMMANDS = ['run', 'perf', 'verify', 'draw', 'print', 'info']


class Info(CommandTest):
    def test_sections(self):
        done = self.good(tamaki('info', '--json', self.path('j')))
        with open(self.path('j')) as file:
            facts = json.load(file)
        for section, fact in (('build', 'kernels'), ('machine', 'caches'), ('memory between ranks', '/dev/shm'), ('memory between ranks', 'process_vm_readv'),
                              ('network', 'lo'), ('transports', 'shm'), ('transports', 'tcp'), ('algorithms', 'allreduce'), ('MPI', 'MPICH'), ('job', 'started by')):
            self.assertTrue(facts[section][fact], f'{section}: {fact}')
            self.assertIn(fact, done.stdout)
        self.assertIn('ring', facts['algorithms']['allreduce'])

    def test_options(self):
        done = self.good(tamaki('info', '--options', '--json', self.path('j'), environment={'TAMAKI_TIMEOUT_MS': '1234', 'TAMAKI_SECRET': 'f' * 64}))
        self.assertRegex(done.stdout, r'TAMAKI_TIMEOUT_MS +1234 +environment')
        self.assertRegex(done.stdout, r'TAMAKI_CHECK +0 +default')
        with open(self.path('j')) as file:
            options = {o['name']: o for o in json.load(file)}
        self.assertEqual((options['TAMAKI_TIMEOUT_MS']['value'], options['TAMAKI_TIMEOUT_MS']['default']), ('1234', '30000'))
        self.assertNotIn('f' * 64, done.stdout + json.dumps(options))

    def test_wrong_setting_is_named(self):
        for arguments in (['info'], ['info', '--options']):
            done = self.good(tamaki(*arguments, environment={'TAMAKI_TIMEOUT_MS': 'x'}), 3)
            self.assertIn('TAMAKI_TIMEOUT_MS="x"', done.stderr)

    def test_job(self):
        done = self.good(tamaki('run', '--no-tag', '--', command.TAMAKI, 'info'))
        self.assertRegex(done.stdout, r'started by +tamaki run')


class Help(CommandTest):
    def test_each_subcommand(self):
        overview = self.good(tamaki('--help')).stdout
        for name in SUBCOMMANDS:
            self.assertIn(f'  {name}', overview)
            text = self.good(tamaki(name, '--help')).stdout
            self.assertIn('Examples:', text)
            self.assertIn('Exit status:', text)

    def test_version(self):
        self.assertRegex(self.good(tamaki('--version')).stdout, r'^tamaki \d+\.\d+\.\d+\n$')

    def test_usage(self):
        for arguments in ([], ['nothing'], ['--bogus'], *([name, '--bogus'] for name in SUBCOMMANDS)):
            done = self.good(tamaki(*arguments), 2)
            self.assertTrue(done.stderr.startswith('tamaki'), done.stderr)
            self.assertEqual(done.stdout, '')


if __name__ == '__main__':
    command.main()
