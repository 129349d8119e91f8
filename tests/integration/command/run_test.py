"""tamaki run: output, input, signals, failures, binding, hosts."""
import os
import re
import signal
import subprocess
import time

import command
from command import CommandTest, tamaki


def alive(marker):
    """Processes that have `marker` in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/environ', 'rb') as file:
                if marker.encode() in file.read():
                    with open(f'/proc/{pid}/stat') as stat:
                        if stat.read().rsplit(')', 1)[1].split()[0] != 'Z':
                            found.append(int(pid))
        except OSError:
            pass
    return found


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Output(CommandTest):
    def test_prefix_and_streams(self):
        done = self.good(tamaki('run', '-n', 3, '--', 'sh', '-c', 'echo out $TAMAKI_RANK of $TAMAKI_SIZE; echo err >&2'))
        self.assertEqual(sorted(done.stdout.splitlines()), [f'[{r}] out {r} of 3' for r in range(3)])
        self.assertEqual(sorted(done.stderr.splitlines()), [f'[{r}] err' for r in range(3)])

    def test_lines_stay_whole(self):
        program = self.script('p', '#!/bin/sh\nfor i in $(seq 300); do printf "a$TAMAKI_RANK"; printf "b$TAMAKI_RANK"; echo "c$TAMAKI_RANK"; done\n')
        lines = self.good(tamaki('run', '-n', 4, '--', program)).stdout.splitlines()
        self.assertEqual(len(lines), 1200)
        for line in lines:
            self.assertRegex(line, r'^\[(\d)\] a\1b\1c\1$')

    def test_no_tag_is_byte_for_byte(self):
        done = self.good(tamaki('run', '--no-tag', '--', 'printf', 'one\ntwo without end'))
        self.assertEqual(done.stdout, 'one\ntwo without end')

    def test_last_line_without_end_gets_one_with_tags(self):
        self.assertEqual(self.good(tamaki('run', '--', 'printf', 'x')).stdout, '[0] x\n')

    def test_large_output_arrives(self):
        done = self.good(tamaki('run', '-n', 2, '--no-tag', '--', 'seq', '200000'))
        self.assertEqual(len(done.stdout.splitlines()), 400000)

    def test_reader_that_goes_ends_the_job(self):
        text = f'{command.TAMAKI} run -n 2 --no-tag -- yes | head -n 1; exit ${{PIPESTATUS[0]}}'
        done = subprocess.run(['bash', '-c', text], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.stdout, done.returncode), ('y\n', 128 + signal.SIGPIPE))


class Input(CommandTest):
    def test_stdin_goes_to_rank_0_alone(self):
        text = ''.join(f'{i}\n' for i in range(100000))  # more than the launcher reads ahead
        done = self.good(tamaki('run', '-n', 2, '--no-tag', '--', 'sh', '-c', '[ $TAMAKI_RANK = 1 ] && wc -c || cat', stdin=text))
        lines = done.stdout.splitlines()
        self.assertIn('0', lines)
        lines.remove('0')  # of rank 1's wc, or one of rank 0's: there is one more than was sent
        self.assertEqual(len(lines), 100000)
        self.assertEqual(lines[-1] if lines[-1] != '0' else lines[-2], '99999')

    def test_a_program_that_reads_nothing(self):
        self.good(tamaki('run', '--', 'true', stdin='x' * 1000000))


class Status(CommandTest):
    def test_first_failure_ends_the_rest(self):
        begin = time.monotonic()
        done = self.good(tamaki('run', '-n', 3, '--', 'sh', '-c', '[ $TAMAKI_RANK != 1 ] || exit 5; exec sleep 100'), 5)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertIn('rank 1 exited with status 5; ending the other 2', done.stderr)

    def test_signal(self):
        done = self.good(tamaki('run', '-n', 2, '--', 'sh', '-c', '[ $TAMAKI_RANK = 0 ] || kill -9 $$; exec sleep 100'), 137)
        self.assertIn('rank 1 was ended by signal 9 (Killed)', done.stderr)

    def test_keep_going(self):
        done = self.good(tamaki('run', '-n', 2, '--keep-going', '--', 'sh', '-c', '[ $TAMAKI_RANK = 1 ] || exit 4; sleep 0.3; echo late'), 4)
        self.assertEqual(done.stdout, '[1] late\n')

    def test_linger_lets_others_report(self):
        done = self.good(tamaki('run', '-n', 2, '--linger', 20, '--', 'sh', '-c', '[ $TAMAKI_RANK = 1 ] || exit 4; sleep 0.3; echo late'), 4)
        self.assertEqual(done.stdout, '[1] late\n')

    def test_not_there(self):
        done = self.good(tamaki('run', '-n', 2, '--', '/no/such/program'), 127)
        self.assertIn('cannot run /no/such/program: No such file or directory', done.stderr)

    def test_timeout(self):
        done = self.good(tamaki('run', '-n', 2, '--timeout', 0.5, '--', 'sleep', '100'), 124)
        self.assertIn('has not ended within 0.5 s', done.stderr)

    def test_stubborn_ranks_are_killed_after_the_grace(self):
        done = self.good(tamaki('run', '-n', 2, '--grace', 0.3, '--', 'sh', '-c',
                                '[ $TAMAKI_RANK = 1 ] && { sleep 0.3; exit 6; }; trap "" TERM; while :; do sleep 0.05; done'), 6)
        self.assertIn('rank 1 exited with status 6', done.stderr)

    def test_usage(self):
        for arguments, text in ((['run'], 'no program'), (['run', '-n', '0', '--', 'true'], '--ranks'), (['run', '--bogus', '--', 'true'], '--bogus'),
                                (['run', '--bind', 'x', '--', 'true'], '--bind'), (['run', '--hosts', 'a:x', '--', 'true'], '"x"'),
                                (['run', '-n', '5', '--hosts', 'a:2,b:2', '--', 'true'], '5 ranks do not fit'),
                                (['run', '--hosts', '-oProxyCommand=x', '--', 'true'], 'is not host'),
                                (['run', '--env', 'NOT_SET_HERE', '--', 'true'], 'NOT_SET_HERE')):
            done = self.good(tamaki(*arguments), 2)
            self.assertIn(text, done.stderr)

    def test_numbers_that_are_none(self):
        for option, bad, span in (('--timeout', ('nan', 'inf', '-inf', '0', '-1', '1e10', 'x', '5s', ''), '0.001..1000000000'),
                                  ('--grace', ('nan', 'inf', '-1', 'x', ''), '0..1000000000'), ('--linger', ('nan', 'inf', '-1', ''), '0..1000000000'),
                                  ('--ranks', ('0', '-1', '1.5', 'nan', '0x10', '99999999999999999999', ''), '1..16777216')):
            for text in bad:
                with self.subTest(option=option, text=text):
                    done = self.good(tamaki('run', option, text, '--', 'true'), 2)
                    self.assertIn(f'tamaki run: {option}: "{text}" is not', done.stderr)
                    self.assertIn(span, done.stderr)
                    self.assertLess(len(done.stderr), 200)
        self.assertEqual(self.good(tamaki('run', '-n', '010', '--', 'true')).stderr, '')

    def test_hosts_that_are_none(self):
        for hosts, text in (('', '--hosts: "" is empty'), (',', 'host 1 of "," is empty'), ('a,,b', 'host 2 of "a,,b" is empty'), ('a:', 'a:'), ('a:0', '"0" is not a number of slots in 1..16777216'),
                            ('a:-1', '"-1"'), ('a:99999999999', '"99999999999"'), ('a b', '"a b"'), ('[::1', 'no closing ]'), ('a:16777216,b', 'more than 16777216 slots')):
            for words in (['run', '--hosts', hosts, '--', 'true'], ['perf', 'barrier', '--hosts', hosts]):
                with self.subTest(words=words):
                    done = self.good(tamaki(*words), 2)
                    self.assertIn(text, done.stderr)
                    self.assertIn('--hosts', done.stderr)

    def test_what_makes_no_sense_together(self):
        for arguments, text in ((['--rsh', 'ssh', '--', 'true'], '--rsh requires --hosts'), (['--hosts', 'a', '--rsh', '', '--', 'true'], '--rsh'),
                                (['--hosts', 'a', '--rsh', '"x', '--', 'true'], '--rsh'), (['-n', '2', '-n', '3', '--', 'true'], '--ranks: it is given 2 times'),
                                (['--tag', '--no-tag', '--', 'true'], '--no-tag'), (['--', ''], 'the program after -- is ""'), ([], 'no program'),
                                (['--env', 'TAMAKI_RANK=5', '--', 'true'], 'TAMAKI_RANK'), (['--env', '', '--', 'true'], '--env ""')):
            with self.subTest(arguments=arguments):
                self.assertIn(text, self.good(tamaki('run', *arguments), 2).stderr)

    def test_more_ranks_than_a_host_holds(self):
        done = self.good(tamaki('run', '-n', 1 << 24, '--', 'true'), 3)
        self.assertIn('16777216 ranks on one host: ', done.stderr)
        limited = ['sh', '-c', 'ulimit -n 64; exec "$@"', 'sh']
        done = self.good(tamaki('run', '-n', 20, '--', 'true', wrapper=limited), 3)
        self.assertIn('20 ranks on one host need 72 descriptors; the limit is 64', done.stderr)

    def test_a_soft_limit_of_descriptors_is_raised_for_the_launcher_alone(self):
        limited = ['sh', '-c', 'ulimit -S -n 40; exec "$@"', 'sh']
        done = self.good(tamaki('run', '-n', 20, '--no-tag', '--', 'sh', '-c', 'ulimit -S -n', wrapper=limited))
        self.assertEqual(done.stdout, '40\n' * 20)


class Signals(CommandTest):
    def start(self, *arguments):
        self.marker = f'TAMAKI_TEST_MARKER={os.getpid()}.{time.monotonic_ns()}'
        name, value = self.marker.split('=')
        process = subprocess.Popen([command.TAMAKI, 'run', '--env', 'TAMAKI_LOG=error', *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env={**os.environ, name.replace('TAMAKI_', 'X_'): value})
        self.marker = self.marker.replace('TAMAKI_', 'X_')
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close(), process.stderr.close()))
        return process

    def test_handed_on_once(self):
        for number, status in ((signal.SIGINT, 7), (signal.SIGTERM, 7), (signal.SIGUSR1, 0)):
            process = self.start('-n', '2', '--', 'bash', '-c',
                                 f'trap "echo got; exit {status}" {number.name[3:]}; echo ready; while :; do sleep 0.05; done')
            lines = [process.stdout.readline() for _ in range(2)]
            self.assertEqual(sorted(lines), ['[0] ready\n', '[1] ready\n'])
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
            self.assertEqual(sorted(out.splitlines()), ['[0] got', '[1] got'], err)
            self.assertEqual(process.returncode, status)

    def test_default_action_shows_in_the_status(self):
        process = self.start('-n', '2', '--', 'sh', '-c', 'echo ready; exec sleep 100')
        process.stdout.readline(), process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)

    def test_kill_of_the_launcher_leaves_nothing(self):
        process = self.start('-n', '2', '--', 'sh', '-c', 'sleep 1000 & echo ready; sleep 1000')
        process.stdout.readline(), process.stdout.readline()
        self.assertGreaterEqual(len(alive(self.marker)), 6)  # launcher, agent, two shells, their children
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        self.assertTrue(wait_until(lambda: not alive(self.marker)), f'left over: {alive(self.marker)}')

    def test_kill_of_the_agent_is_reported_and_leaves_no_rank(self):
        process = self.start('-n', '2', '--', 'sh', '-c', 'echo ready; exec sleep 1000')
        process.stdout.readline(), process.stdout.readline()
        with open(f'/proc/{process.pid}/task/{process.pid}/children') as file:
            agent = int(file.read().split()[0])
        os.kill(agent, signal.SIGKILL)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 3)
        self.assertIn('was ended by signal 9 (Killed) before its ranks had ended', err)
        self.assertTrue(wait_until(lambda: not alive(self.marker)), f'left over: {alive(self.marker)}')

    def test_children_of_ranks_end_with_the_job(self):
        process = self.start('-n', '1', '--', 'sh', '-c', 'sleep 1000 & exit 0')
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(wait_until(lambda: not alive(self.marker)), f'left over: {alive(self.marker)}')


class Environment(CommandTest):
    def test_variables(self):
        done = self.good(tamaki('run', '-n', 2, '--env', 'A=x y', '--env', 'HOME', '--no-tag', '--', 'sh', '-c',
                                'echo "$A|$HOME|$TAMAKI_LOCAL_RANK|$TAMAKI_LOCAL_SIZE|$TAMAKI_RENDEZVOUS|$TAMAKI_SECRET"'))
        secrets = set()
        for line in done.stdout.splitlines():
            a, home, rank, size, rendezvous, secret = line.split('|')
            self.assertEqual((a, home, size), ('x y', os.environ['HOME'], '2'))
            self.assertIn(rank, '01')
            self.assertRegex(rendezvous, r'^127\.0\.0\.1:\d+$')
            self.assertRegex(secret, r'^[0-9a-f]{64}$')
            secrets.add(secret)
        self.assertEqual(len(secrets), 1)
        other = self.good(tamaki('run', '--no-tag', '--', 'sh', '-c', 'echo $TAMAKI_SECRET')).stdout.strip()
        self.assertNotIn(other, secrets)

    def test_signals_and_descriptors_of_ranks_are_ordinary(self):
        done = self.good(tamaki('run', '--no-tag', '--', 'sh', '-c', 'grep -E "SigBlk|SigIgn" /proc/self/status; ls /proc/self/fd | wc -l'))
        self.assertIn('SigBlk:\t0000000000000000', done.stdout)
        self.assertIn('SigIgn:\t0000000000000000', done.stdout)
        self.assertLessEqual(int(done.stdout.splitlines()[-1]), 4)  # three and that of ls itself

    def test_binding(self):
        allowed = sorted(os.sched_getaffinity(0))
        text = 'echo $TAMAKI_RANK $(grep Cpus_allowed_list /proc/self/status | cut -f 2)'
        ranks = len(allowed) + 1
        cores = {}
        for line in self.good(tamaki('run', '-n', ranks, '--bind', 'core', '--no-tag', '--', 'sh', '-c', text)).stdout.splitlines():
            rank, core = line.split()
            cores[int(rank)] = int(core)
        self.assertEqual(sorted(set(cores.values())), allowed)  # each one used, the first one twice
        self.assertEqual(cores[len(allowed)], cores[0])
        free = self.good(tamaki('run', '-n', ranks, '--no-tag', '--', 'sh', '-c', text)).stdout.splitlines()
        own = subprocess.run(['sh', '-c', 'grep Cpus_allowed_list /proc/self/status | cut -f 2'], capture_output=True, text=True).stdout.strip()
        self.assertEqual({line.split()[1] for line in free}, {own})  # more ranks than cores: not bound


class Hosts(CommandTest):
    def test_placement_quoting_and_secret(self):
        words = ["it's", '"two" words', '$HOME `id`', '', '\\', 'a;b|c&d']
        done = self.good(tamaki('run', '-n', 5, '--hosts', 'a,b:3', '--rsh', self.remote_shell(), '--no-tag', '--env', "Q=it's $X", '--',
                                'sh', '-c', 'echo "$TAMAKI_RANK $SEEN_HOST $TAMAKI_LOCAL_RANK/$TAMAKI_LOCAL_SIZE $TAMAKI_RENDEZVOUS $Q $PWD"; printf "<%s>" "$@" >&2; echo >&2', 'x', *words))
        lines = sorted(done.stdout.splitlines())
        port = re.search(r'a:(\d+)', lines[0]).group(1)
        self.assertEqual(lines, [f"{r} {h} {l} a:{port} it's $X {os.getcwd()}" for r, h, l in
                                 ((0, 'a', '0/2'), (1, 'a', '1/2'), (2, 'b', '0/3'), (3, 'b', '1/3'), (4, 'b', '2/3'))])
        self.assertEqual(set(done.stderr.splitlines()), {''.join(f'<{w}>' for w in words)})
        with open(self.path('calls')) as file:
            calls = file.read()
        self.assertEqual(calls.count('\n'), 2)
        self.assertNotRegex(calls, r'[0-9a-f]{64}')  # no secret on a command line
        self.assertNotIn('two', calls)               # nor the job

    def test_unreachable_host(self):
        done = self.good(tamaki('run', '-n', 2, '--hosts', 'a,unreachable', '--rsh', self.remote_shell(), '--', 'sleep', '100'), 3)
        self.assertIn('[unreachable] no route to unreachable', done.stderr)
        self.assertIn('the agent on unreachable exited with status 255', done.stderr)

    def test_greeting_of_a_shell_is_named(self):
        done = self.good(tamaki('run', '--hosts', 'greeting', '--rsh', self.remote_shell(), '--', 'true'), 3)
        self.assertIn('Welcome to greeting', done.stderr)

    def test_remote_shell_not_there(self):
        done = self.good(tamaki('run', '--hosts', 'a', '--rsh', '/no/such/shell', '--', 'true'), 3)
        self.assertIn('cannot run /no/such/shell', done.stderr)

    def test_failure_on_one_host_ends_the_other(self):
        done = self.good(tamaki('run', '-n', 2, '--hosts', 'a,b', '--rsh', self.remote_shell(), '--', 'sh', '-c',
                                '[ $SEEN_HOST = a ] || exit 9; exec sleep 100'), 9)
        self.assertIn('rank 1 on b exited with status 9', done.stderr)

    def test_ranks_of_two_hosts_find_each_other(self):
        done = self.good(tamaki('perf', 'allreduce', '-n', 3, '--hosts', '127.0.0.1:2,localhost:1', '--rsh', self.remote_shell(),
                                '-b', 1024, '-e', 1024, '-w', 1, '-i', 2, '-R', 1, '--check'))
        self.assertIn('# 3 ranks on', done.stdout)
        with open(self.path('calls')) as file:
            self.assertEqual(len(file.readlines()), 2)


if __name__ == '__main__':
    command.main()
