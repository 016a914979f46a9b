'use strict';
const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { createInterface } = require('node:readline');
const { after, test } = require('node:test');
const https = require('node:https');

const { programPath, startCluster } = require('../index.js');

const folder = mkdtempSync(join(tmpdir(), 'kubewright-js-'));
after(() => rmSync(folder, { recursive: true }));

const runs = (pid) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

// A program that is a script.
function script(name, text) {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${text}\n`);
  chmodSync(path, 0o755);
  return path;
}

// A request with the certificates of the kubeconfig, whose fields are one a line.
async function get({ kubeconfig, address }, path) {
  const text = readFileSync(kubeconfig, 'utf8');
  const field = (name) => Buffer.from(text.match(new RegExp(`${name}: (\\S+)`))[1], 'base64');
  const [response] = await once(
    https.get(address + path, {
      ca: field('certificate-authority-data'),
      cert: field('client-certificate-data'),
      key: field('client-key-data'),
    }),
    'response',
  );
  return JSON.parse(Buffer.concat(await response.toArray()).toString());
}

test('a cluster answers until it is stopped', async () => {
  const cluster = await startCluster();
  assert.match(cluster.address, /^https:\/\/127\.0\.0\.1:\d+$/);
  assert.equal((await get(cluster, '/api/v1/namespaces/default')).kind, 'Namespace');
  await Promise.all([cluster.stop(), cluster.stop()]);
  assert.ok(!runs(cluster.pid) && !existsSync(cluster.kubeconfig));
});

test('what `await using` calls ends it', async () => {
  const cluster = await startCluster({ controllers: 'none' });
  await cluster[Symbol.asyncDispose]();
  assert.ok(!runs(cluster.pid));
});

test('what does not start says why', async () => {
  const wrong = [
    [{ program: '/nowhere/kubewright' }, /did not start: \/nowhere\/kubewright: there is no such program: install/],
    [{ program: script('hello', 'echo hello') }, /said "hello" instead of being ready; is it kubewright\?/],
    [{ program: script('melts', 'echo melting >&2; exit 7') }, /exit status 7\n {2}melting/],
    [{ program: script('waits', 'exec tail -f /dev/null'), startTimeout: 500 }, /not ready within 500 ms/],
    [{ controllers: 'nonsense' }, /there is no controller "nonsense"/],
    [{ args: ['--listen', 'nowhere'] }, /exit status 2\n/],
  ];
  for (const [options, said] of wrong) await assert.rejects(startCluster(options), said);
});

test('a cluster that ended by itself is told when it is stopped', async () => {
  const cluster = await startCluster();
  process.kill(cluster.pid, 'SIGKILL');
  while (runs(cluster.pid)) await new Promise((resolve) => setTimeout(resolve, 10));
  await assert.rejects(cluster.stop(), /ended before it was stopped \(SIGKILL\)/);
});

// A program that starts a cluster and tells its number.
const starts = `require(${JSON.stringify(require.resolve('../index.js'))}).startCluster()
  .then((cluster) => console.log(cluster.pid))`;

test('a program that forgets its cluster ends, and the cluster with it', async () => {
  const program = spawn(process.execPath, ['-e', starts], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(createInterface(program.stdout), 'line');
  await once(program, 'exit');
  while (runs(Number(line))) await new Promise((resolve) => setTimeout(resolve, 10));
});

test('a program that is killed takes its cluster along', async () => {
  const waits = `${starts}.then(() => setInterval(() => {}, 1000))`;
  const program = spawn(process.execPath, ['-e', waits], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(createInterface(program.stdout), 'line');
  assert.ok(runs(Number(line)));
  program.kill('SIGKILL');
  while (runs(Number(line))) await new Promise((resolve) => setTimeout(resolve, 10));
});

test('the environment names the program', () => {
  const before = process.env.KUBEWRIGHT;
  process.env.KUBEWRIGHT = '/nowhere/kubewright';
  assert.equal(programPath(), '/nowhere/kubewright');
  if (before === undefined) delete process.env.KUBEWRIGHT;
  else process.env.KUBEWRIGHT = before;
});
