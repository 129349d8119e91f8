"""perf_tests/compare.py runs to its end and writes a result for each cell. How fast anything is, is not looked at."""
import json
import os
import shutil
import subprocess
import sys

import command
from command import CommandTest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..', 'perf_tests', 'compare.py')


class Compare(CommandTest):
    def test_quick(self):
        peers = [p for p in ('openmpi', 'mpich') if shutil.which(f'mpirun.{p}') and shutil.which(f'mpicc.{p}')]
        done = subprocess.run([sys.executable, SCRIPT, '--build', command.BUILD, '--out', self.folder, '--json', self.path('j'), '--quick', '--only', '2,pass'],
                              capture_output=True, text=True, timeout=500)
        self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)
        with open(self.path('j')) as file:
            result = json.load(file)
        self.assertEqual({c['what'] for c in result['cells']} >= {'private', 'shared'}, True)
        for cell in result['cells']:
            self.assertGreater(cell['us'], 0)
            self.assertGreater(cell['bound_us'], 0)
            for peer in peers:
                self.assertGreater(cell['peers_us'][peer], 0)
        self.assertIn('figures', done.stdout)


if __name__ == '__main__':
    if not shutil.which('cc') or not shutil.which('c++') or not os.path.exists(os.path.join(command.BUILD, 'libtamaki.so')):
        print('no compiler or no libtamaki.so: left out')
        sys.exit(77)
    with open(os.path.join(command.BUILD, 'CMakeCache.txt')) as cache:
        if any(line.startswith('TAMAKI_SANITIZE:') and line.strip().split('=')[1] for line in cache):
            print('a sanitized library does not load into programs that are not: left out')
            sys.exit(77)
    command.main()
