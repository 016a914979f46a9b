/** What a cluster is started with. */
export interface ClusterOptions {
  /** The kubewright to run; else what `programPath()` says. */
  program?: string;
  /** The built-in controllers to run: `all` (the default), `none` (an API server alone), or names with commas. */
  controllers?: string;
  /** Keeps all objects in this folder and goes on with what is there; else everything is in memory. */
  dataDir?: string;
  /** Further flags of `kubewright cluster`. */
  args?: readonly string[];
  /** Variables for the program. `KUBEWRIGHT_LOG: 'debug'` makes it talk. */
  env?: Readonly<Record<string, string>>;
  /** Is called with each line of its standard error. */
  log?: (line: string) => void;
  /** Milliseconds until it must answer; 30,000 by default. */
  startTimeout?: number;
  /** Milliseconds until it is killed when it does not stop; 10,000 by default. */
  stopTimeout?: number;
}

/** A running cluster. It ends with this process at the latest, even if that is killed. */
export interface Cluster {
  /** The path of the kubeconfig, of a user who may do everything. The file goes with the cluster. */
  readonly kubeconfig: string;
  /** Where the API server listens: `https://127.0.0.1` and a port. */
  readonly address: string;
  /** The number of its process. */
  readonly pid: number;
  /** Ends the cluster; its process is gone when this resolves. Rejects when it had ended before by itself. */
  stop(): Promise<void>;
  /** The same, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Starts a cluster, which answers when this resolves. */
export function startCluster(options?: ClusterOptions): Promise<Cluster>;

/**
 * The program that `startCluster` runs: what the environment variable `KUBEWRIGHT` names, else the one in this package,
 * else `kubewright` on the `PATH`.
 */
export function programPath(): string;
