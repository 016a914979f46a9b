//! The kit: a cluster with the helpers of a test around it.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::kube::api::{ObjectMeta, PostParams};
use kubewright::kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kubewright::kube::{self, Api, CustomResourceExt, ResourceExt as _};
use kubewright::{Cache, Client, Entropy, InNamespace, Manager, ManagerBuilder, Object, Operator, Rule, Stop};
use kubewright_cluster::{Cluster, ClusterBuilder};
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::failures::{self, Failures};
use crate::intercept::{Answer, Call, Interceptor, Interceptors};
use crate::pods::Pods;
use crate::rights::Rights;
use crate::routes::Routes;
use crate::running::{Operators, RunningOperator};
use crate::time::TokioClock;
use crate::usage::Usage;
use crate::wait::{Observed, selector, until};

/// How long a wait takes at most unless the test says otherwise. Generous, for machines that are busy: a success takes
/// milliseconds.
const DEADLINE: Duration = Duration::from_secs(30);

/// A cluster of a test's own, in its process. A clone is another handle to the same cluster; it stops with the last
/// one.
#[derive(Clone, Debug)]
pub struct TestCluster {
    cluster: Cluster,
    pub(crate) client: Client,
    operators: Arc<Operators>,
    deadline: Duration,
    /// The first operator that ended by itself, and why. A test that waits for its work would wait in vain.
    pub(crate) ended: watch::Sender<Option<(String, String)>>,
    pub(crate) failures: Failures,
    usage: Usage,
    intercepts: Interceptors,
    /// Time and chance of a cluster whose time is the test's.
    pub(crate) env: Option<(Arc<TokioClock>, Entropy)>,
}

impl TestCluster {
    /// A cluster with all controllers, in memory, without a socket. Takes a few milliseconds.
    ///
    /// # Errors
    /// [`Error::Cluster`].
    pub async fn start() -> Result<TestCluster> {
        TestCluster::start_with(Cluster::builder()).await
    }

    /// A cluster as `builder` says: without controllers, as envtest is, of another version of Kubernetes
    /// ([`ClusterBuilder::kubernetes_version`]), or with an observer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> kubewright_testing::Result<()> {
    /// use kubewright_testing::{Cluster, Controllers, TestCluster};
    /// let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Cluster`].
    pub async fn start_with(builder: ClusterBuilder) -> Result<TestCluster> {
        let cluster = builder.start().await?;
        let client = Client::new(cluster.client(), Cache::new(cluster.client()));
        let (failures, usage) = (Failures::default(), Usage::default());
        Ok(TestCluster {
            cluster,
            client,
            operators: Arc::new(Operators::new(failures.clone(), usage.clone())),
            deadline: DEADLINE,
            ended: watch::Sender::new(None),
            failures,
            usage,
            intercepts: Interceptors::default(),
            env: None,
        })
    }

    /// The same cluster with another deadline for the waits of this handle. Default 30 seconds.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> TestCluster {
        TestCluster {
            deadline,
            ..self.clone()
        }
    }

    /// The cluster itself.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The client that operators use: reads from a cache (of its own, shared with no operator) that has seen its own
    /// writes.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The client of kube: every request goes to the server.
    pub fn kube(&self) -> kube::Client {
        self.cluster.client()
    }

    /// [`kube`](TestCluster::kube) for a user in these groups and in `system:authenticated`, with the rights that roles
    /// grant (envtest's `AddUser`): for tests of roles, and of admission that depends on the user.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> kubewright_testing::Result<()> {
    /// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
    /// use kubewright::kube::Api;
    /// # let cluster = kubewright_testing::TestCluster::start().await?;
    /// let jane = cluster.kube_as("jane", ["dev"]);
    /// let refused = Api::<ConfigMap>::default_namespaced(jane).get("settings").await.unwrap_err();
    /// assert!(refused.to_string().contains("User \"jane\" cannot get resource \"configmaps\""), "{refused}");
    /// # Ok(()) }
    /// ```
    pub fn kube_as<'a>(&self, user: &str, groups: impl IntoIterator<Item = &'a str>) -> kube::Client {
        self.cluster.client_of_user(user, groups)
    }

    /// Asks `decides` about each request of the operators that are run in this cluster, until the answer of this
    /// function is dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> kubewright_testing::Result<()> {
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use kubewright_testing::{Answer, TestCluster, refusal};
    ///
    /// let cluster = TestCluster::start().await?;
    /// // The first update of a status meets a conflict, and Secrets cannot be read.
    /// let is_first = AtomicBool::new(true);
    /// let _faults = cluster.intercept(move |call| match () {
    ///     () if call.is("update", "guestbooks/status") && is_first.swap(false, Ordering::Relaxed) => {
    ///         refusal(409, "Conflict", "the object has been modified")
    ///     }
    ///     () if call.resource == "secrets" => refusal(403, "Forbidden", "secrets is forbidden"),
    ///     () => Answer::Pass,
    /// });
    /// // cluster.run(guestbook::operator()).await?;
    /// # Ok(()) }
    /// ```
    pub fn intercept(&self, decides: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Interceptor {
        self.intercepts.add(decides)
    }

    /// The pods that a label selector selects, to say how they behave on the simulated nodes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> kubewright_testing::Result<()> {
    /// # let cluster = kubewright_testing::TestCluster::start().await?;
    /// cluster.pods("app=db").fail(137).await?;
    /// cluster.pods("app=web").slow(std::time::Duration::from_secs(10)).await?;
    /// # Ok(()) }
    /// ```
    pub fn pods(&self, selector: &str) -> Pods {
        Pods {
            kube: self.kube(),
            behaviours: self.cluster.behaviours().clone(),
            selector: selector.to_owned(),
            namespace: None,
        }
    }

    /// Opens HTTPS on loopback and returns a kubeconfig (YAML) for it, for tests of programs in other processes.
    ///
    /// # Errors
    /// [`Error::Cluster`].
    pub async fn kubeconfig(&self) -> Result<String> {
        Ok(self.cluster.listen(([127, 0, 0, 1], 0).into()).await?.kubeconfig)
    }

    /// A new namespace with a generated name, so that tests may share a cluster without meeting.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn namespace(&self) -> Result<String> {
        let metadata = ObjectMeta {
            generate_name: Some("test-".to_owned()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        let created = Api::all(self.kube()).create(&PostParams::default(), &namespace).await;
        Ok(created
            .map_err(|source| Error::Api {
                attempted: "create a namespace".to_owned(),
                source,
            })?
            .name_any())
    }

    /// Installs the CRD of a type with `#[derive(CustomResource)]`, and waits until its objects can be created.
    ///
    /// # Errors
    /// As [`install_crds`](TestCluster::install_crds).
    pub async fn install_crd<K: CustomResourceExt>(&self) -> Result<()> {
        self.install_crds([K::crd()]).await
    }

    /// Installs CRDs, and waits until their objects can be created. An existing CRD is left as it is.
    ///
    /// # Errors
    /// [`Error::Api`] when the server refuses one, [`Error::Deadline`] when one is not established.
    pub async fn install_crds(&self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.kube());
        for crd in crds {
            let name = crd.name_any();
            match api.create(&PostParams::default(), &crd).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
                Err(source) => {
                    return Err(Error::Api {
                        attempted: format!("install the CRD {name}"),
                        source,
                    });
                }
            }
            self.wait_for(None, &name, "condition Established is True", established)
                .await?;
        }
        Ok(())
    }

    /// Installs the operator's CRDs and webhook configurations and runs it under its own role: that of the package's
    /// `config/rbac/role.yaml`, which `kubewright manifests` writes (and those of leader election and of the metrics
    /// beside it). A request beyond the role is refused, as it would be in production; a test that panics prints what was
    /// refused, and a wait for what depends on it ends early. The operator's own namespace is `<name>-system`, where its
    /// Leases are. A package without a folder `config/rbac` runs its operator as the administrator.
    ///
    /// # Errors
    /// As [`run_as_admin`](TestCluster::run_as_admin), and [`Error::Runtime`] when the file is not there or cannot be read.
    pub async fn run(&self, operator: Operator) -> Result<RunningOperator> {
        let kube = self.kube_of(&operator, false).await?;
        self.run_with(operator, kube, false).await
    }

    /// The client of an operator under the role of its package, or of the administrator where there is none.
    /// `is_granted` says that this cluster has the role already.
    pub(crate) async fn kube_of(&self, operator: &Operator, is_granted: bool) -> Result<kube::Client> {
        if is_granted {
            return Ok(match Rights::account_of_package(operator.name()) {
                Some((namespace, account)) => self.cluster.client_of_service_account(&namespace, account),
                None => self.kube(),
            });
        }
        match Rights::of_package(operator.name())? {
            Some(rights) => self.kube_with_rights(operator.name(), rights).await,
            None => Ok(self.kube()),
        }
    }

    /// [`run`](TestCluster::run) under the roles of another folder than the package's `config/rbac`.
    ///
    /// # Errors
    /// As [`run`](TestCluster::run), also when there is no `role.yaml`.
    pub async fn run_under(&self, operator: Operator, folder: &Path) -> Result<RunningOperator> {
        let rights = Rights::in_folder(folder, operator.name())?;
        let kube = self.kube_with_rights(operator.name(), rights).await?;
        self.run_with(operator, kube, false).await
    }

    pub(crate) async fn kube_with_rights(&self, name: &str, rights: Rights) -> Result<kube::Client> {
        rights.grant(&self.kube(), name).await?;
        let (namespace, account) = rights.account();
        self.usage.grant(rights.roles());
        let kube = self.cluster.client_of_service_account(namespace, account);
        Ok(self.usage.noting(&kube, namespace))
    }

    /// The rules of the operators' roles that no request has used so far, each with the unused verbs: rights of a
    /// deployment that this test did not try. A test that plays a whole life (create, change, delete) is the place to
    /// look at them. A request that was refused uses no rule; operators that run as the administrator have none.
    ///
    /// ```no_run
    /// # async fn test(cluster: kubewright_testing::TestCluster) {
    /// for rule in cluster.unused_rules() {
    ///     println!("not used: {rule}"); // not used: #[rbac(groups = "", resources = "secrets", verbs = "delete")]
    /// }
    /// # }
    /// ```
    pub fn unused_rules(&self) -> Vec<Rule> {
        self.usage.unused()
    }

    /// Installs the operator's CRDs and webhook configurations and runs it as the administrator, in the background
    /// until it is stopped or the cluster is, by its last handle. When it ends by itself, waits of this cluster fail at
    /// once and say why.
    ///
    /// The API server calls the operator's webhooks and conversions without a socket, so there is no certificate to
    /// make. Once the operator has ended they cannot be reached, as those of a real one: then their failure policies
    /// decide.
    ///
    /// # Errors
    /// As [`install_crds`](TestCluster::install_crds), and [`Error::Runtime`] when the operator's parts do not fit
    /// together.
    pub async fn run_as_admin(&self, operator: Operator) -> Result<RunningOperator> {
        self.run_with(operator, self.kube(), false).await
    }

    /// `is_installed` says that the CRDs and configurations of this operator are here already.
    pub(crate) async fn run_with(
        &self,
        operator: Operator,
        kube: kube::Client,
        is_installed: bool,
    ) -> Result<RunningOperator> {
        let name = operator.name().to_owned();
        let mut crds = if is_installed { Vec::new() } else { operator.crds()? };
        self.failures.declared(&operator.declaration()?);
        let observer = Arc::new(self.failures.clone());
        let kube = self.intercepts.before(&kube);
        let operator = operator.prepared(&kube).await?;
        let manager = operator.manager(kube).observe(observer).refuse_undeclared_reads(true);
        let manager = self.in_its_time(manager).build()?;
        let metrics = manager.metrics();
        let routes = Routes::new(&name, manager.webhooks());
        routes.open(&self.cluster);
        routes.convert(&mut crds);
        self.install_crds(crds).await?;
        if !is_installed {
            for configuration in routes.configurations() {
                self.install(configuration).await?;
            }
        }
        let (source, stop) = Stop::pair();
        let source = Arc::new(source);
        self.operators.add(source.clone());
        let running = manager.run({
            let stop = stop.clone();
            async move { stop.requested().await }
        });
        let (ended, operator) = (self.ended.clone(), name.clone());
        let task = tokio::spawn(async move {
            let result = std::panic::AssertUnwindSafe(running).catch_unwind().await;
            routes.close();
            let why = match &result {
                Ok(Ok(())) if stop.is_requested() => None,
                Ok(Ok(())) => Some("it returned though nobody stopped it".to_owned()),
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("it panicked".to_owned()),
            };
            if let Some(why) = why {
                ended.send_if_modified(|first| {
                    let is_first = first.is_none();
                    first.get_or_insert((operator, why));
                    is_first
                });
            }
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        Ok(RunningOperator {
            name,
            stop: source,
            task,
            metrics,
        })
    }

    /// The parts of a manager beside the operators that are run here, with the time and the chance of this cluster.
    pub fn manager(&self, kube: kube::Client) -> ManagerBuilder {
        self.in_its_time(Manager::builder(kube))
    }

    fn in_its_time(&self, manager: ManagerBuilder) -> ManagerBuilder {
        match &self.env {
            Some((clock, entropy)) => manager.clock(clock.clone()).entropy(entropy.clone()),
            None => manager,
        }
    }

    /// Creates an object of any kind; one that is there already is left as it is.
    async fn install(&self, object: DynamicObject) -> Result<()> {
        let resource = ApiResource::from_gvk(
            &GroupVersionKind::try_from(object.types.clone().unwrap_or_default())
                .map_err(|error| Error::Runtime(kubewright::Error::Configuration(error.to_string())))?,
        );
        let api: Api<DynamicObject> = Api::all_with(self.kube(), &resource);
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
            Err(source) => Err(Error::Api {
                attempted: format!("install the {} {}", resource.kind, object.name_any()),
                source,
            }),
        }
    }

    /// Waits until the object exists and `condition` holds for it, and returns it as it then was. `expected` describes
    /// the state, in words that complete "… was not as expected (…)".
    ///
    /// # Errors
    /// [`Error::Deadline`] with the object as it was last seen, [`Error::Forbidden`] when the operator tries in vain what
    /// its role does not allow, [`Error::OperatorEnded`], [`Error::Api`].
    pub async fn wait_for<K: Object>(
        &self,
        namespace: impl InNamespace,
        name: &str,
        expected: &str,
        mut condition: impl FnMut(&K) -> bool,
    ) -> Result<Arc<K>> {
        let namespace = namespace.namespace();
        self.wait(namespace, Some(name), expected, |seen: &Observed<K>| {
            match seen.objects.first() {
                Some(object) if condition(object) => ControlFlow::Break(Arc::new(object.clone())),
                _ => ControlFlow::Continue(()),
            }
        })
        .await
    }

    /// Waits until there is no object of this name.
    ///
    /// # Errors
    /// As [`wait_for`](TestCluster::wait_for).
    pub async fn wait_gone<K: Object>(&self, namespace: impl InNamespace, name: &str) -> Result<()> {
        let namespace = namespace.namespace();
        self.wait(namespace, Some(name), "is gone", |seen: &Observed<K>| {
            match seen.objects.is_empty() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
        .await
    }

    /// Waits until `condition` holds for all objects of a kind, in one namespace or in all, in the order of their
    /// names, and returns them as they then were.
    ///
    /// # Errors
    /// As [`wait_for`](TestCluster::wait_for).
    pub async fn wait_for_all<K: Object>(
        &self,
        namespace: impl InNamespace,
        expected: &str,
        mut condition: impl FnMut(&[K]) -> bool,
    ) -> Result<Vec<K>> {
        let namespace = namespace.namespace();
        self.wait(namespace, None, expected, |seen: &Observed<K>| {
            match condition(&seen.objects) {
                true => ControlFlow::Break(seen.objects.clone()),
                false => ControlFlow::Continue(()),
            }
        })
        .await
    }

    /// Stops the operators and the cluster, and waits until everything in it has ended, which takes less than a second.
    /// Dropping it is enough for most tests.
    pub async fn stop(&self) {
        self.operators.stop();
        self.cluster.stop().await;
    }

    async fn wait<K: Object, T>(
        &self,
        namespace: Option<&str>,
        name: Option<&str>,
        expected: &str,
        look: impl FnMut(&Observed<K>) -> ControlFlow<T>,
    ) -> Result<T> {
        let api: Api<K> = Api::all(self.kube());
        let mut ended = self.ended.subscribe();
        let mut seen = Observed::nothing();
        let fields = selector(namespace, name);
        let object = || {
            [Some(&*K::kind(&())), namespace, name]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let mut is_forbidden = false;
        tokio::select! {
            biased;
            found = until(&api, &fields, &mut seen, look) => {
                return found.map_err(|source| Error::Api { attempted: format!("watch {}", object()), source });
            }
            Ok(failure) = ended.wait_for(Option::is_some) => {
                if let Some((operator, why)) = failure.clone() {
                    return Err(Error::OperatorEnded { operator, why });
                }
            }
            () = self.usage.denied(|missing| self.failures.are_for_want_of(missing)) => is_forbidden = true,
            () = tokio::time::sleep(self.deadline) => {}
        }
        let events = match name {
            Some(name) => failures::events(self.kube(), &K::kind(&()), namespace, name).await,
            None => String::new(),
        };
        let (object, expected, seen) = (object(), expected.to_owned(), seen.describe());
        let failures = self.failures.describe(namespace, name);
        let refused = self.failures.describe_refused(&self.usage.refused(), &failures);
        let troubles = format!("{failures}{refused}{events}");
        if is_forbidden {
            return Err(Error::Forbidden {
                object,
                expected,
                seen,
                troubles,
            });
        }
        let time = match &self.env {
            Some(_) => {
                "\nthe time is the test's: what is due later than that takes TestCluster::with_deadline, or \
                 TestCluster::advance before the wait"
            }
            None => "",
        };
        Err(Error::Deadline {
            object,
            expected,
            deadline: self.deadline,
            seen,
            troubles: format!("{troubles}{time}"),
        })
    }
}

fn established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
}
