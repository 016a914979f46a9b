'use strict';
// A Kubernetes cluster for tests: the process that `kubewright cluster` is. Nothing but Node's standard library is
// needed. The process never outlives this one: it watches its parent. Not here: a client for the cluster.

const { spawn } = require('node:child_process');
const { once } = require('node:events');
const { accessSync, constants } = require('node:fs');
const { join } = require('node:path');
const { createInterface } = require('node:readline');

// How many of the program's last lines are kept for error messages.
const LINES = 100;
const MISSING =
  'there is no such program: install the package that has it inside, or let the environment variable KUBEWRIGHT name it';

exports.programPath = programPath;
exports.startCluster = startCluster;

function programPath() {
  if (process.env.KUBEWRIGHT) return process.env.KUBEWRIGHT;
  const packaged = join(__dirname, 'bin', 'kubewright');
  try {
    accessSync(packaged, constants.X_OK);
    return packaged;
  } catch {
    return 'kubewright'; // on the PATH
  }
}

async function startCluster(options = {}) {
  const { program = programPath(), controllers = 'all', dataDir, args = [], env = {}, log } = options;
  const { startTimeout = 30_000, stopTimeout = 10_000 } = options;
  const flags = ['cluster', '--exit-with-parent', '--output', 'json', '--controllers', controllers];
  if (dataDir !== undefined) flags.push('--data-dir', dataDir);
  const child = spawn(program, [...flags, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
    // A Ctrl-C is for the tests, which may still need the cluster to clean up.
    detached: true,
  });
  const ended = new Promise((resolve) => {
    child.once('error', (why) => resolve(why.code === 'ENOENT' ? MISSING : why.message));
    // `close` and not `exit`: all that it said has been read then.
    child.once('close', (code, signal) => resolve(signal ?? `exit status ${code}`));
  });

  const last = [];
  createInterface(child.stderr).on('line', (line) => {
    last.push(line);
    if (last.length > LINES) last.shift();
    log?.(line);
  });
  const failed = (what) => new Error([what, ...last.map(inWords)].join('\n  '));

  // What is printed later is read too, because a full pipe would stop the program.
  const first = new Promise((resolve) => createInterface(child.stdout).once('line', resolve).on('line', () => {}));
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, startTimeout)));
  const event = await Promise.race([
    first.then((line) => ({ line })),
    ended.then((how) => ({ how })),
    late.then(() => ({ late: true })),
  ]);
  clearTimeout(timer);
  let ready;
  try {
    ready = JSON.parse(event.line);
  } catch {
    ready = undefined;
  }
  if (ready?.event !== 'ready') {
    child.kill('SIGKILL');
    if (event.late) throw failed(`the cluster did not start: not ready within ${startTimeout} ms`);
    if (event.how) throw failed(`the cluster did not start: ${program}: ${event.how}`);
    throw failed(`${program} said ${JSON.stringify(event.line)} instead of being ready; is it kubewright?`);
  }

  // Tests that forget to stop it end nevertheless, and it ends with them.
  const handles = [child, child.stdout, child.stderr];
  for (const handle of handles) handle.unref();
  let stopping;
  const stop = () => (stopping ??= end());
  async function end() {
    if (child.exitCode !== null || child.signalCode !== null) {
      throw failed(`the cluster ended before it was stopped (${await ended})`);
    }
    for (const handle of handles) handle.ref();
    const gone = once(child, 'exit');
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), stopTimeout);
    const [code, signal] = await gone;
    clearTimeout(timer);
    for (const pipe of [child.stdout, child.stderr]) pipe.destroy();
    if (signal === 'SIGKILL') throw failed(`the cluster did not stop within ${stopTimeout} ms and was killed`);
    if (code !== 0) throw failed(`the cluster ended badly when it was stopped (${signal ?? `exit status ${code}`})`);
  }
  const { kubeconfig, address } = ready;
  return { kubeconfig, address, pid: child.pid, stop, [Symbol.asyncDispose]: stop };
}

// An error of the program in words; other lines as they are.
function inWords(line) {
  let event;
  try {
    event = JSON.parse(line);
  } catch {
    return line;
  }
  if (event?.event !== 'error') return line;
  const words = [event.error, ...(event.because ?? [])].join(': ');
  return event.fix ? `${words} (${event.fix})` : words;
}
