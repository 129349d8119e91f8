"""tamaki info, help, version and exit statuses."""
import json
import subprocess

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

    def wrong(self, environment, *texts):
        """Named with `texts` beside the setting and on stderr, with and without --options, and in the JSON."""
        for arguments in (['info', '--json', self.path('j')], ['info', '--options', '--json', self.path('j')]):
            done = self.good(tamaki(*arguments, environment=environment), 2)
            with open(self.path('j')) as file:
                parsed = json.load(file)
            facts = ' '.join(o.get('error', '') for o in parsed) if isinstance(parsed, list) else ' '.join({**parsed['settings'], **parsed['job']}.values())
            for text in texts:
                for place in (done.stdout[done.stdout.index('WRONG: '):], done.stderr, facts):
                    self.assertIn(text, place)

    def test_a_setting_out_of_its_range(self):
        self.wrong({'TAMAKI_TIMEOUT_MS': 'x'}, 'TAMAKI_TIMEOUT_MS="x"', '1..2147483647')
        self.wrong({'TAMAKI_CHECK': 'yes', 'TAMAKI_LANES': '65'}, 'TAMAKI_CHECK="yes"', '0|1', 'TAMAKI_LANES="65"', '0..64')  # not only the first
        self.wrong({'TAMAKI_SHM_BACKING': 'disk'}, 'TAMAKI_SHM_BACKING="disk"', 'auto|memfd|devshm')

    def test_a_name_that_does_not_exist(self):
        self.wrong({'TAMAKI_TRANSPORTS': 'nonsense'}, 'TAMAKI_TRANSPORTS="nonsense"', 'inproc, shm, tcp')
        self.wrong({'TAMAKI_TRANSPORTS': ''}, 'TAMAKI_TRANSPORTS=""', 'inproc, shm, tcp')
        self.wrong({'TAMAKI_INTERFACES': 'eth77'}, 'TAMAKI_INTERFACES="eth77"', 'lo 127.0.0.1')
        for collective, other in (('ALLREDUCE', 'ring'), ('REDUCE', 'knomial'), ('BROADCAST', 'chain'), ('ALLGATHER', 'bruck'), ('REDUCE_SCATTER', 'pairwise'),
                                  ('GATHER', 'direct'), ('SCATTER', 'direct'), ('ALLTOALL', 'bruck'), ('BARRIER', 'dissemination')):
            done = self.good(tamaki('info', '--options', environment={f'TAMAKI_{collective}': 'foo:0-'}), 2)
            self.assertIn(f'TAMAKI_{collective}="foo:0-"', done.stderr)
            self.assertIn(other, done.stderr)

    def test_rules_that_cannot_be_read(self):
        self.wrong({'TAMAKI_ALLREDUCE': 'ring:4K-1K'}, 'TAMAKI_ALLREDUCE="ring:4K-1K"', 'range is empty')
        self.wrong({'TAMAKI_ALLREDUCE': 'ring:x-'}, '"x" is not a size')
        self.good(tamaki('info', '--options', environment={'TAMAKI_ALLREDUCE': 'direct:0-16K,ring:16K-100M'}))

    def test_settings_that_disagree(self):
        self.wrong({'TAMAKI_SIZE': '2'}, 'TAMAKI_RANK is not set, though TAMAKI_SIZE="2" is')
        self.wrong({'TAMAKI_RANK': '2', 'TAMAKI_SIZE': '2'}, 'TAMAKI_RANK="2" is not a number in 0..1')
        self.wrong({'TAMAKI_RANK': '1', 'TAMAKI_SIZE': '2'}, 'TAMAKI_RENDEZVOUS is not set')
        self.wrong({'TAMAKI_LOCAL_RANK': '3', 'TAMAKI_LOCAL_SIZE': '2'}, 'TAMAKI_LOCAL_RANK="3"', '0..1')
        self.wrong({'TAMAKI_MPI_MIN_BYTES': '2M', 'TAMAKI_MPI_MAX_BYTES': '1M'}, 'TAMAKI_MPI_MIN_BYTES="2M"', 'TAMAKI_MPI_MAX_BYTES=1M')
        done = self.good(tamaki('info', environment={'OMPI_COMM_WORLD_RANK': '3'}), 2)
        self.assertIn('OMPI_COMM_WORLD_SIZE is not set', done.stderr)

    def test_places_that_are_not_there(self):
        self.wrong({'TAMAKI_LOG_FILE': '/no/such/folder/log'}, 'TAMAKI_LOG_FILE="/no/such/folder/log"', '"/no/such/folder"')
        self.wrong({'TAMAKI_RENDEZVOUS': 'a:99999'}, '"99999" is not a port in 1..65535')
        self.wrong({'TAMAKI_RENDEZVOUS': 'fe80::1:9999'}, '[address]:port')

    def test_good_settings_are_shown_and_are_no_error(self):
        good = {'TAMAKI_TRANSPORTS': 'tcp', 'TAMAKI_RANK': '0', 'TAMAKI_SIZE': '2', 'TAMAKI_RENDEZVOUS': '[::1]:7', 'TAMAKI_SECRET': 'f' * 64,
                'TAMAKI_INTERFACES': 'lo', 'TAMAKI_LOG_FILE': self.path('log.%r')}
        for arguments in (['info'], ['info', '--options']):
            done = self.good(tamaki(*arguments, environment=good))
            self.assertNotIn('WRONG', done.stdout)
            self.assertRegex(done.stdout, r'TAMAKI_TRANSPORTS +tcp')
            self.assertNotIn('f' * 64, done.stdout)

    def test_output_that_is_lost(self):
        for arguments in (['info'], ['info', '--json', '-']):
            with open('/dev/full', 'w') as full:
                done = subprocess.run([command.TAMAKI, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 3)
            self.assertIn('No space left', done.stderr)
        self.assertIn('"/no/such/folder/j"', self.good(tamaki('info', '--json', '/no/such/folder/j'), 3).stderr)

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

    def test_unknown_subcommand(self):
        for arguments in (['bench'], ['bench', '--help'], ['--help', 'bench'], ['bench', '-n', '2', '--', 'true'], [''], []):
            done = self.good(tamaki(*arguments), 2)
            self.assertIn('run, perf, verify, draw, print, info', done.stderr)
            self.assertEqual(done.stdout, '')
        self.assertIn('is perf meant?', self.good(tamaki('prf'), 2).stderr)

    def test_only_run_takes_a_program(self):
        for name in SUBCOMMANDS[1:]:
            self.assertIn('--', self.good(tamaki(name, '--', 'allreduce'), 2).stderr)

    def test_version(self):
        self.assertRegex(self.good(tamaki('--version')).stdout, r'^tamaki \d+\.\d+\.\d+\n$')

    def test_usage(self):
        for arguments in ([], ['nothing'], ['--bogus'], *([name, '--bogus'] for name in SUBCOMMANDS)):
            done = self.good(tamaki(*arguments), 2)
            self.assertTrue(done.stderr.startswith('tamaki'), done.stderr)
            self.assertEqual(done.stdout, '')


if __name__ == '__main__':
    command.main()
