"""What the tests of the command share: running it, and a remote shell that stays on this machine."""
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

# A parent that ignores SIGINT (a shell's background job) would hand that on to the launcher.
signal.signal(signal.SIGINT, signal.default_int_handler)

TAMAKI = os.path.abspath(sys.argv[1]) if len(sys.argv) > 2 else ''
BUILD = sys.argv[2] if len(sys.argv) > 2 else ''

os.environ.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', PRTE_ALLOW_RUN_AS_ROOT='1',
                  PRTE_ALLOW_RUN_AS_ROOT_CONFIRM='1')
for name in list(os.environ):
    if name.startswith('TAMAKI_'):
        del os.environ[name]
os.environ['TAMAKI_TUNING'] = 'off'  # that of the machine would change what is chosen


def tamaki(*arguments, stdin='', timeout=120, environment=None, wrapper=()):
    return subprocess.run([*wrapper, TAMAKI, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(environment or {})})


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='tamaki-command-')
        self.addCleanup(shutil.rmtree, self.folder, True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def script(self, name, text):
        path = self.path(name)
        with open(path, 'w') as file:
            file.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def remote_shell(self):
        """Takes a host and a command line, as ssh does; leaves what it was called with in `calls`."""
        return self.script('rsh', f'''#!/bin/sh
host=$1; shift
echo "$host: $*" >> {self.path('calls')}
[ "$host" != unreachable ] || {{ echo "no route to $host" >&2; exit 255; }}
[ "$host" != greeting ] || echo "Welcome to $host"
cd /
SEEN_HOST=$host exec sh -c "$*"
''')

    def good(self, done, status=0):
        self.assertEqual(done.returncode, status, f'\nstdout: {done.stdout}\nstderr: {done.stderr}')
        return done


def main():
    del sys.argv[1:3]
    unittest.main(verbosity=1)
