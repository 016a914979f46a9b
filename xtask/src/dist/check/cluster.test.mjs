// A cluster with the package alone, whose program is its own.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { programPath, startCluster } from 'kubewright';

test('a cluster starts and stops', async () => {
  assert.ok(programPath().startsWith(`${import.meta.dirname}/node_modules/kubewright/`), programPath());
  const cluster = await startCluster();
  assert.ok(existsSync(cluster.kubeconfig));
  await cluster.stop();
  assert.ok(!existsSync(cluster.kubeconfig));
});
