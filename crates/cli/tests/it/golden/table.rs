//! How each golden project comes about: the commands, then the edits of a user. `kubewright manifests` comes last.

/// A project in `testdata/golden`, called like its folder.
pub(crate) struct Golden {
    pub(crate) name: &'static str,
    /// The arguments of `kubewright`.
    pub(crate) commands: &'static [&'static str],
    /// The edits afterwards, where the scaffold alone would prove nothing.
    pub(crate) edits: &'static [Edit],
}

/// A piece of a file that is replaced. It stands there exactly once.
pub(crate) struct Edit {
    pub(crate) file: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

/// The golden projects.
pub(crate) const PROJECTS: &[Golden] = &[
    // The golden path, with nothing written by hand.
    Golden {
        name: "plain",
        commands: &[
            "init --domain my.domain --kubewright ../../..",
            "create api --group webapp --version v1 --kind Guestbook --resource --controller",
            "create webhook --group webapp --version v1 --kind Guestbook --defaulting --programmatic-validation",
        ],
        edits: &[],
    },
    // Several groups, the same kind in two of them; markers, a column, a child, a rule of a role, a check.
    Golden {
        name: "multigroup",
        commands: &[
            "init --domain fleet.example --kubewright ../../..",
            "create api --group crew --version v1 --kind Sailor --resource --controller",
            "edit --multigroup",
            "create api --group dock.harbour --version v1beta1 --kind Berth --namespaced=false --resource --controller",
            "create api --group sea-lanes --version v1 --kind Sailor --resource --controller",
            "create webhook --group crew --version v1 --kind Sailor --programmatic-validation",
        ],
        edits: &[
            Edit {
                file: "api/src/crew/v1/sailor_types.rs",
                from: "    status = \"SailorStatus\",\n",
                to: r#"    status = "SailorStatus",
    shortname = "sail",
    printcolumn(name = "Rank", type_ = "string", json_path = ".spec.rank"),
"#,
            },
            Edit {
                file: "api/src/crew/v1/sailor_types.rs",
                from: r#"    /// An example of a field.
    // Edit or remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
"#,
                to: r#"    /// The rank aboard.
    #[serde(default)]
    pub rank: Rank,

    /// The number of the bunk; a captain has a cabin instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub bunk: Option<i32>,
"#,
            },
            Edit {
                file: "api/src/crew/v1/sailor_types.rs",
                from: "/// SailorStatus is the observed state of a Sailor.\n",
                to: r#"/// What a sailor is aboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Rank {
    /// Works the ship.
    #[default]
    Deckhand,
    /// Sees to it that it is done.
    Bosun,
    /// Answers for it.
    Captain,
}

/// SailorStatus is the observed state of a Sailor.
"#,
            },
            Edit {
                file: "api/src/crew/v1/mod.rs",
                from: "{Sailor, SailorSpec, SailorStatus}",
                to: "{Rank, Sailor, SailorSpec, SailorStatus}",
            },
            Edit {
                file: "config/samples/crew_v1_sailor.yaml",
                from: "spec: {}\n",
                to: "spec:\n  rank: Bosun\n  bunk: 7\n",
            },
            Edit {
                file: "src/controller/crew/sailor_controller.rs",
                from: "use kubewright::predicate;\n",
                to: "use kubewright::k8s_openapi::api::core::v1::ConfigMap;\nuse kubewright::predicate;\n",
            },
            Edit {
                file: "src/controller/crew/sailor_controller.rs",
                from: "// #[rbac(groups = \"\", resources = \"secrets\", verbs = \"get\")]\n",
                to: "#[rbac(groups = \"\", resources = \"secrets\", verbs = \"get\")]\n",
            },
            Edit {
                file: "src/controller/crew/sailor_controller.rs",
                from: "        let object = &*sailor;\n",
                to: r#"        let mut papers = ConfigMap::default();
        papers.metadata.name = Some(format!("{}-papers", sailor.name_any()));
        papers.metadata.namespace = sailor.namespace();
        let rank = format!("{:?}", sailor.spec.rank);
        papers.data = Some([("rank".to_owned(), rank)].into());
        ctx.apply(papers).await?;
        let object = &*sailor;
"#,
            },
            Edit {
                file: "src/controller/crew/sailor_controller.rs",
                from: "    Controller::of(SailorReconciler).with_predicate::<v1::Sailor>(predicate::generation_changed)\n",
                to: "    Controller::of(SailorReconciler)\n        .with_predicate::<v1::Sailor>(predicate::generation_changed)\n        .owns::<ConfigMap>()\n",
            },
            Edit {
                file: "tests/it/crew_sailor_controller.rs",
                from: "use kubewright::kube::api::{Api, PostParams};\n",
                to: "use kubewright::k8s_openapi::api::core::v1::ConfigMap;\nuse kubewright::kube::api::{Api, PostParams};\n",
            },
            Edit {
                file: "tests/it/crew_sailor_controller.rs",
                from: "    running.stop().await?;\n",
                to: r#"    let papers = Api::<ConfigMap>::namespaced(cluster.kube(), "default");
    let data = papers.get("sample-papers").await?.data.unwrap_or_default();
    assert_eq!(data["rank"], "Deckhand");
    running.stop().await?;
"#,
            },
            Edit {
                file: "src/webhook/crew/v1/sailor_webhook.rs",
                from: r#"        let errors = FieldErrors::new();
        // A field that is wrong is named: `errors.invalid("spec.foo", &sailor.spec.foo, "must be …")`.
        let _ = sailor;
"#,
                to: r#"        let mut errors = FieldErrors::new();
        if sailor.spec.rank == v1::Rank::Captain && sailor.spec.bunk.is_some() {
            errors.invalid("spec.bunk", sailor.spec.bunk, "a captain has a cabin");
        }
"#,
            },
            Edit {
                file: "tests/it/crew_sailor_webhook.rs",
                from: "    // Assert here what is refused.\n",
                to: r#"    let mut captain = sample();
    captain.spec.rank = v1::Rank::Captain;
    captain.spec.bunk = Some(1);
    let refused = SailorValidator.create(&captain, &request).await;
    assert!(refused.is_err_and(|why| why.to_string().contains("spec.bunk")));
"#,
            },
        ],
    },
    // Two versions of a kind: the second has a field that the first keeps in an annotation.
    Golden {
        name: "conversion",
        commands: &[
            "init --domain my.domain --kubewright ../../..",
            "create api --group shelf --version v1 --kind Book --resource --controller",
            "create api --group shelf --version v2 --kind Book --resource --controller=false",
            "create webhook --group shelf --version v1 --kind Book --conversion --spoke v2 --defaulting",
        ],
        edits: &[
            // Certificates of cert-manager, which all others do without.
            Edit {
                file: "config/default/kustomization.yaml",
                from: "\n- ../certificates\n",
                to: "\n#- ../certificates\n",
            },
            Edit {
                file: "config/default/kustomization.yaml",
                from: "\n#- ../certmanager\n",
                to: "\n- ../certmanager\n",
            },
            Edit {
                file: "api/src/v2/book_types.rs",
                from: "    pub foo: Option<String>,\n",
                to: r#"    pub foo: Option<String>,

    /// What stands below the title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 120))]
    pub subtitle: Option<String>,
"#,
            },
            Edit {
                file: "api/src/v2/book_conversion.rs",
                from: "impl TryFrom<v2::Book> for v1::Book {\n",
                to: r#"/// Where `v1` keeps what only `v2` can say.
const SUBTITLE: &str = "shelf.my.domain/subtitle";

impl TryFrom<v2::Book> for v1::Book {
"#,
            },
            Edit {
                file: "api/src/v2/book_conversion.rs",
                from: r#"        Ok(v1::Book {
            metadata: spoke.metadata,
"#,
                to: r#"        let mut metadata = spoke.metadata;
        if let Some(subtitle) = spoke.spec.subtitle {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(SUBTITLE.to_owned(), subtitle);
        }
        Ok(v1::Book {
            metadata,
"#,
            },
            Edit {
                file: "api/src/v2/book_conversion.rs",
                from: r#"        Ok(v2::Book {
            metadata: hub.metadata,
            spec: v2::BookSpec { foo: hub.spec.foo },
"#,
                to: r#"        let mut metadata = hub.metadata;
        let annotations = metadata.annotations.as_mut();
        let subtitle = annotations.and_then(|annotations| annotations.remove(SUBTITLE));
        metadata.annotations = metadata.annotations.filter(|left| !left.is_empty());
        Ok(v2::Book {
            metadata,
            spec: v2::BookSpec {
                foo: hub.spec.foo,
                subtitle,
            },
"#,
            },
        ],
    },
    // A kind of Kubernetes itself.
    Golden {
        name: "core",
        commands: &[
            "init --domain my.domain --kubewright ../../..",
            "create api --group core --version v1 --kind Pod --resource=false --controller",
            "create webhook --group core --version v1 --kind Pod --defaulting --programmatic-validation",
        ],
        edits: &[
            Edit {
                file: "src/controller/pod_controller.rs",
                from: "// #[rbac(groups = \"\", resources = \"secrets\", verbs = \"get\")]\n",
                to: "#[rbac(groups = \"\", resources = \"nodes\", verbs = \"get\")]\n",
            },
            Edit {
                file: "src/webhook/v1/pod_webhook.rs",
                from: "        // Set what is missing.\n        let _ = pod;\n",
                to: r#"        if let Some(spec) = &mut pod.spec {
            spec.automount_service_account_token.get_or_insert(false);
        }
"#,
            },
            Edit {
                file: "tests/it/pod_webhook.rs",
                from: "    v1::Pod::default()\n",
                to: r#"    v1::Pod {
        spec: Some(v1::PodSpec::default()),
        ..v1::Pod::default()
    }
"#,
            },
            Edit {
                file: "tests/it/pod_webhook.rs",
                from: "    // Assert the defaults here.\n",
                to: r#"    let spec = once.spec.clone().unwrap_or_default();
    assert_eq!(spec.automount_service_account_token, Some(false));
"#,
            },
        ],
    },
    // A kind whose controller runs an image, with nothing written by hand.
    Golden {
        name: "deploy-image",
        commands: &[
            "init --domain my.domain --kubewright ../../..",
            "create api --group cache --version v1alpha1 --kind Memstore --image=memcached:1.6.26-alpine3.19 --image-container-command=memcached,--memory-limit=64,-o,modern,-v --image-container-port=11211 --run-as-user=1001 --plugins=deploy-image/v1-alpha",
            "create webhook --group cache --version v1alpha1 --kind Memstore --programmatic-validation",
        ],
        edits: &[],
    },
    // A kind of another project, whose definition is not ours.
    Golden {
        name: "external",
        commands: &[
            "init --domain my.domain --kubewright ../../..",
            "create api --group gateway.networking --version v1 --kind HTTPRoute --external-api-domain k8s.io --resource=false --controller",
            "create webhook --group gateway.networking --version v1 --kind HTTPRoute --external-api-domain k8s.io --programmatic-validation",
        ],
        edits: &[
            Edit {
                file: "api/src/external/gateway_networking/v1/httproute_types.rs",
                from: "pub struct HTTPRouteSpec {\n",
                to: r#"pub struct HTTPRouteSpec {
    /// The hosts that the route is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,

"#,
            },
            Edit {
                file: "src/controller/httproute_controller.rs",
                from: "// #[rbac(groups = \"\", resources = \"secrets\", verbs = \"get\")]\n",
                to: "#[rbac(groups = \"\", resources = \"services\", verbs = \"get\")]\n",
            },
            Edit {
                file: "src/webhook/v1/httproute_webhook.rs",
                from: r#"        let errors = FieldErrors::new();
        // A field that is wrong is named: `errors.invalid("spec.foo", &httproute.spec.foo, "must be …")`.
        let _ = httproute;
"#,
                to: r#"        let mut errors = FieldErrors::new();
        if httproute.spec.hostnames.is_empty() {
            errors.required("spec.hostnames", "a route is for some hosts");
        }
"#,
            },
            Edit {
                file: "tests/it/httproute_webhook.rs",
                from: "    v1::HTTPRoute::new(\"sample\", v1::HTTPRouteSpec::default())\n",
                to: r#"    let mut httproute = v1::HTTPRoute::new("sample", v1::HTTPRouteSpec::default());
    httproute.spec.hostnames = vec!["my.domain".to_owned()];
    httproute
"#,
            },
            Edit {
                file: "tests/it/httproute_webhook.rs",
                from: "    // Assert here what is refused.\n",
                to: r#"    let for_all = v1::HTTPRoute::new("sample", v1::HTTPRouteSpec::default());
    let refused = HTTPRouteValidator.create(&for_all, &request).await;
    assert!(refused.is_err_and(|why| why.to_string().contains("spec.hostnames")));
"#,
            },
        ],
    },
];
