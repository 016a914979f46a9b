//! The types of `v1`: pods and what belongs to them, nodes, services, volumes.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::ByteString;
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta, Time};
use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

types! {
    Affinity {
        node_affinity "nodeAffinity": Option<NodeAffinity>, pod_affinity "podAffinity": Option<PodAffinity>,
        pod_anti_affinity "podAntiAffinity": Option<PodAntiAffinity>,
    }
    AppArmorProfile { localhost_profile "localhostProfile": Option<String>, type_ "type": String }
    Binding is NamespaceResourceScope "v1" "" "v1" "bindings" { metadata: ObjectMeta, target: ObjectReference }
    CSIPersistentVolumeSource {
        controller_expand_secret_ref "controllerExpandSecretRef": Option<Value>,
        controller_publish_secret_ref "controllerPublishSecretRef": Option<Value>, driver: String,
        fs_type "fsType": Option<String>, node_expand_secret_ref "nodeExpandSecretRef": Option<Value>,
        node_publish_secret_ref "nodePublishSecretRef": Option<Value>,
        node_stage_secret_ref "nodeStageSecretRef": Option<Value>, read_only "readOnly": Option<bool>,
        volume_attributes "volumeAttributes": Option<BTreeMap<String, String>>, volume_handle "volumeHandle": String,
    }
    CSIVolumeSource {
        driver: String, fs_type "fsType": Option<String>,
        node_publish_secret_ref "nodePublishSecretRef": Option<Value>, read_only "readOnly": Option<bool>,
        volume_attributes "volumeAttributes": Option<BTreeMap<String, String>>,
    }
    Capabilities { add: Option<Vec<String>>, drop: Option<Vec<String>> }
    ClusterTrustBundleProjection {
        label_selector "labelSelector": Option<LabelSelector>, name: Option<String>, optional: Option<bool>,
        path: String, signer_name "signerName": Option<String>, user: Option<i64>,
    }
    ConfigMap is NamespaceResourceScope "v1" "" "v1" "configmaps" {
        binary_data "binaryData": Option<BTreeMap<String, ByteString>>, data: Option<BTreeMap<String, String>>,
        immutable: Option<bool>, metadata: ObjectMeta,
    }
    ConfigMapEnvSource { name: String, optional: Option<bool> }
    ConfigMapKeySelector { key: String, name: String, optional: Option<bool> }
    ConfigMapNodeConfigSource {
        kubelet_config_key "kubeletConfigKey": String, name: String, namespace: String,
        resource_version "resourceVersion": Option<String>, uid: Option<String>,
    }
    ConfigMapProjection { items: Option<Vec<KeyToPath>>, name: String, optional: Option<bool> }
    ConfigMapVolumeSource {
        default_mode "defaultMode": Option<i32>, default_user "defaultUser": Option<i64>,
        items: Option<Vec<KeyToPath>>, name: String, optional: Option<bool>,
    }
    Container {
        args: Option<Vec<String>>, command: Option<Vec<String>>, env: Option<Vec<EnvVar>>,
        env_from "envFrom": Option<Vec<EnvFromSource>>, image: Option<String>,
        image_pull_policy "imagePullPolicy": Option<String>, lifecycle: Option<Lifecycle>,
        liveness_probe "livenessProbe": Option<Probe>, name: String, ports: Option<Vec<ContainerPort>>,
        readiness_probe "readinessProbe": Option<Probe>,
        resize_policy "resizePolicy": Option<Vec<ContainerResizePolicy>>, resources: Option<ResourceRequirements>,
        restart_policy "restartPolicy": Option<String>,
        restart_policy_rules "restartPolicyRules": Option<Vec<ContainerRestartRule>>,
        security_context "securityContext": Option<SecurityContext>, startup_probe "startupProbe": Option<Probe>,
        stdin: Option<bool>, stdin_once "stdinOnce": Option<bool>,
        termination_message_path "terminationMessagePath": Option<String>,
        termination_message_policy "terminationMessagePolicy": Option<String>, tty: Option<bool>,
        volume_devices "volumeDevices": Option<Vec<VolumeDevice>>,
        volume_mounts "volumeMounts": Option<Vec<VolumeMount>>, working_dir "workingDir": Option<String>,
    }
    ContainerImage { names: Option<Vec<String>>, size_bytes "sizeBytes": Option<i64> }
    ContainerPort {
        container_port "containerPort": i32, host_ip "hostIP": Option<String>, host_port "hostPort": Option<i32>,
        name: Option<String>, protocol: Option<String>,
    }
    ContainerResizePolicy { resource_name "resourceName": String, restart_policy "restartPolicy": String }
    ContainerRestartRule { action: String, exit_codes "exitCodes": Option<ContainerRestartRuleOnExitCodes> }
    ContainerRestartRuleOnExitCodes { operator: String, values: Option<Vec<i32>> }
    ContainerState {
        running: Option<ContainerStateRunning>, terminated: Option<ContainerStateTerminated>,
        waiting: Option<ContainerStateWaiting>,
    }
    ContainerStateRunning { started_at "startedAt": Option<Time> }
    ContainerStateTerminated {
        container_id "containerID": Option<String>, exit_code "exitCode": i32, finished_at "finishedAt": Option<Time>,
        message: Option<String>, reason: Option<String>, signal: Option<i32>, started_at "startedAt": Option<Time>,
    }
    ContainerStateWaiting { message: Option<String>, reason: Option<String> }
    ContainerStatus {
        allocated_resources "allocatedResources": Option<BTreeMap<String, Quantity>>,
        allocated_resources_status "allocatedResourcesStatus": Option<Vec<Value>>,
        container_id "containerID": Option<String>, image: String, image_id "imageID": String,
        last_state "lastState": Option<ContainerState>, name: String, ready: bool,
        resources: Option<ResourceRequirements>, restart_count "restartCount": i32, started: Option<bool>,
        state: Option<ContainerState>, stop_signal "stopSignal": Option<String>, user: Option<ContainerUser>,
        volume_mounts "volumeMounts": Option<Vec<VolumeMountStatus>>,
    }
    ContainerUser { linux: Option<Value> }
    DownwardAPIProjection { items: Option<Vec<DownwardAPIVolumeFile>> }
    DownwardAPIVolumeFile {
        field_ref "fieldRef": Option<ObjectFieldSelector>, mode: Option<i32>, path: String,
        resource_field_ref "resourceFieldRef": Option<ResourceFieldSelector>, user: Option<i64>,
    }
    DownwardAPIVolumeSource {
        default_mode "defaultMode": Option<i32>, default_user "defaultUser": Option<i64>,
        items: Option<Vec<DownwardAPIVolumeFile>>,
    }
    EmptyDirVolumeSource { medium: Option<String>, mode: Option<i32>, size_limit "sizeLimit": Option<Quantity> }
    EndpointAddress {
        hostname: Option<String>, ip: String, node_name "nodeName": Option<String>,
        target_ref "targetRef": Option<ObjectReference>,
    }
    EndpointPort {
        app_protocol "appProtocol": Option<String>, name: Option<String>, port: i32, protocol: Option<String>,
    }
    EndpointSubset {
        addresses: Option<Vec<EndpointAddress>>,
        not_ready_addresses "notReadyAddresses": Option<Vec<EndpointAddress>>, ports: Option<Vec<EndpointPort>>,
    }
    Endpoints is NamespaceResourceScope "v1" "" "v1" "endpoints" {
        metadata: ObjectMeta, subsets: Option<Vec<EndpointSubset>>,
    }
    EnvFromSource {
        config_map_ref "configMapRef": Option<ConfigMapEnvSource>, prefix: Option<String>,
        secret_ref "secretRef": Option<SecretEnvSource>,
    }
    EnvVar { name: String, value: Option<String>, value_from "valueFrom": Option<EnvVarSource> }
    EnvVarSource {
        config_map_key_ref "configMapKeyRef": Option<ConfigMapKeySelector>,
        field_ref "fieldRef": Option<ObjectFieldSelector>, file_key_ref "fileKeyRef": Option<Value>,
        resource_field_ref "resourceFieldRef": Option<ResourceFieldSelector>,
        secret_key_ref "secretKeyRef": Option<SecretKeySelector>,
    }
    EphemeralContainer {
        args: Option<Vec<String>>, command: Option<Vec<String>>, env: Option<Vec<EnvVar>>,
        env_from "envFrom": Option<Vec<EnvFromSource>>, image: Option<String>,
        image_pull_policy "imagePullPolicy": Option<String>, lifecycle: Option<Lifecycle>,
        liveness_probe "livenessProbe": Option<Probe>, name: String, ports: Option<Vec<ContainerPort>>,
        readiness_probe "readinessProbe": Option<Probe>,
        resize_policy "resizePolicy": Option<Vec<ContainerResizePolicy>>, resources: Option<ResourceRequirements>,
        restart_policy "restartPolicy": Option<String>,
        restart_policy_rules "restartPolicyRules": Option<Vec<ContainerRestartRule>>,
        security_context "securityContext": Option<SecurityContext>, startup_probe "startupProbe": Option<Probe>,
        stdin: Option<bool>, stdin_once "stdinOnce": Option<bool>,
        target_container_name "targetContainerName": Option<String>,
        termination_message_path "terminationMessagePath": Option<String>,
        termination_message_policy "terminationMessagePolicy": Option<String>, tty: Option<bool>,
        volume_devices "volumeDevices": Option<Vec<VolumeDevice>>,
        volume_mounts "volumeMounts": Option<Vec<VolumeMount>>, working_dir "workingDir": Option<String>,
    }
    EphemeralVolumeSource { volume_claim_template "volumeClaimTemplate": Option<PersistentVolumeClaimTemplate> }
    ExecAction { command: Option<Vec<String>> }
    GRPCAction { mode: Option<String>, port: i32, service: Option<String> }
    HTTPGetAction {
        host: Option<String>, http_headers "httpHeaders": Option<Vec<HTTPHeader>>, path: Option<String>,
        port: IntOrString, protocol: Option<String>, scheme: Option<String>,
    }
    HTTPHeader { name: String, value: String }
    HostAlias { hostnames: Option<Vec<String>>, ip: String }
    HostIP { ip: String }
    HostPathVolumeSource { path: String, type_ "type": Option<String> }
    ImageVolumeSource { pull_policy "pullPolicy": Option<String>, reference: Option<String> }
    KeyToPath { key: String, mode: Option<i32>, path: String, user: Option<i64> }
    Lifecycle {
        post_start "postStart": Option<LifecycleHandler>, pre_stop "preStop": Option<LifecycleHandler>,
        stop_signal "stopSignal": Option<String>,
    }
    LifecycleHandler {
        exec: Option<ExecAction>, http_get "httpGet": Option<HTTPGetAction>, sleep: Option<SleepAction>,
        tcp_socket "tcpSocket": Option<TCPSocketAction>,
    }
    LoadBalancerIngress {
        hostname: Option<String>, ip: Option<String>, ip_mode "ipMode": Option<String>,
        ports: Option<Vec<PortStatus>>,
    }
    LoadBalancerStatus { ingress: Option<Vec<LoadBalancerIngress>> }
    LocalVolumeSource { fs_type "fsType": Option<String>, path: String }
    ModifyVolumeStatus {
        status: String, target_volume_attributes_class_name "targetVolumeAttributesClassName": Option<String>,
    }
    NFSVolumeSource { path: String, read_only "readOnly": Option<bool>, server: String }
    Namespace is ClusterResourceScope "v1" "" "v1" "namespaces" {
        metadata: ObjectMeta, spec: Option<NamespaceSpec>, status: Option<NamespaceStatus>,
    }
    NamespaceCondition {
        last_transition_time "lastTransitionTime": Option<Time>, message: Option<String>, reason: Option<String>,
        status: String, type_ "type": String,
    }
    NamespaceSpec { finalizers: Option<Vec<String>> }
    NamespaceStatus { conditions: Option<Vec<NamespaceCondition>>, phase: Option<String> }
    Node is ClusterResourceScope "v1" "" "v1" "nodes" {
        metadata: ObjectMeta, spec: Option<NodeSpec>, status: Option<NodeStatus>,
    }
    NodeAddress { address: String, type_ "type": String }
    NodeAffinity {

        preferred_during_scheduling_ignored_during_execution "preferredDuringSchedulingIgnoredDuringExecution": Option<Vec<PreferredSchedulingTerm>>,
        required_during_scheduling_ignored_during_execution "requiredDuringSchedulingIgnoredDuringExecution": Option<NodeSelector>,
    }
    NodeCondition {
        last_heartbeat_time "lastHeartbeatTime": Option<Time>,
        last_transition_time "lastTransitionTime": Option<Time>, message: Option<String>, reason: Option<String>,
        status: String, type_ "type": String,
    }
    NodeConfigSource { config_map "configMap": Option<ConfigMapNodeConfigSource> }
    NodeConfigStatus {
        active: Option<NodeConfigSource>, assigned: Option<NodeConfigSource>, error: Option<String>,
        last_known_good "lastKnownGood": Option<NodeConfigSource>,
    }
    NodeSelector { node_selector_terms "nodeSelectorTerms": Vec<NodeSelectorTerm> }
    NodeSelectorRequirement { key: String, operator: String, values: Option<Vec<String>> }
    NodeSelectorTerm {
        match_expressions "matchExpressions": Option<Vec<NodeSelectorRequirement>>,
        match_fields "matchFields": Option<Vec<NodeSelectorRequirement>>,
    }
    NodeSpec {
        config_source "configSource": Option<NodeConfigSource>, external_id "externalID": Option<String>,
        pod_cidr "podCIDR": Option<String>, pod_cidrs "podCIDRs": Option<Vec<String>>,
        pod_preemption_policy "podPreemptionPolicy": Option<Value>, provider_id "providerID": Option<String>,
        taints: Option<Vec<Taint>>, unschedulable: Option<bool>,
    }
    NodeStatus {
        addresses: Option<Vec<NodeAddress>>, allocatable: Option<BTreeMap<String, Quantity>>,
        capacity: Option<BTreeMap<String, Quantity>>, conditions: Option<Vec<NodeCondition>>,
        config: Option<NodeConfigStatus>, daemon_endpoints "daemonEndpoints": Option<Value>,
        declared_features "declaredFeatures": Option<Vec<String>>, features: Option<Value>,
        images: Option<Vec<ContainerImage>>, node_info "nodeInfo": Option<NodeSystemInfo>, phase: Option<String>,
        runtime_handlers "runtimeHandlers": Option<Vec<Value>>,
        volumes_attached "volumesAttached": Option<Vec<Value>>, volumes_in_use "volumesInUse": Option<Vec<String>>,
    }
    NodeSwapStatus { capacity: Option<i64> }
    NodeSystemInfo {
        architecture: String, boot_id "bootID": String, container_runtime_version "containerRuntimeVersion": String,
        kernel_version "kernelVersion": String, kube_proxy_version "kubeProxyVersion": String,
        kubelet_version "kubeletVersion": String, machine_id "machineID": String,
        operating_system "operatingSystem": String, os_image "osImage": String,
        running_in_user_namespace "runningInUserNamespace": Option<bool>, swap: Option<NodeSwapStatus>,
        system_uuid "systemUUID": String,
    }
    ObjectFieldSelector { api_version "apiVersion": Option<String>, field_path "fieldPath": String }
    ObjectReference {
        api_version "apiVersion": Option<String>, field_path "fieldPath": Option<String>, kind: Option<String>,
        name: Option<String>, namespace: Option<String>, resource_version "resourceVersion": Option<String>,
        uid: Option<String>,
    }
    PersistentVolume is ClusterResourceScope "v1" "" "v1" "persistentvolumes" {
        metadata: ObjectMeta, spec: Option<PersistentVolumeSpec>, status: Option<PersistentVolumeStatus>,
    }
    PersistentVolumeClaim is NamespaceResourceScope "v1" "" "v1" "persistentvolumeclaims" {
        metadata: ObjectMeta, spec: Option<PersistentVolumeClaimSpec>, status: Option<PersistentVolumeClaimStatus>,
    }
    PersistentVolumeClaimCondition {
        last_probe_time "lastProbeTime": Option<Time>, last_transition_time "lastTransitionTime": Option<Time>,
        message: Option<String>, reason: Option<String>, status: String, type_ "type": String,
    }
    PersistentVolumeClaimSpec {
        access_modes "accessModes": Option<Vec<String>>, data_source "dataSource": Option<Value>,
        data_source_ref "dataSourceRef": Option<Value>, resources: Option<VolumeResourceRequirements>,
        selector: Option<LabelSelector>, storage_class_name "storageClassName": Option<String>,
        volume_attributes_class_name "volumeAttributesClassName": Option<String>,
        volume_mode "volumeMode": Option<String>, volume_name "volumeName": Option<String>,
    }
    PersistentVolumeClaimStatus {
        access_modes "accessModes": Option<Vec<String>>,
        allocated_resource_statuses "allocatedResourceStatuses": Option<BTreeMap<String, String>>,
        allocated_resources "allocatedResources": Option<BTreeMap<String, Quantity>>,
        capacity: Option<BTreeMap<String, Quantity>>, conditions: Option<Vec<PersistentVolumeClaimCondition>>,
        current_volume_attributes_class_name "currentVolumeAttributesClassName": Option<String>,
        health_status "healthStatus": Option<Value>,
        modify_volume_status "modifyVolumeStatus": Option<ModifyVolumeStatus>, phase: Option<String>,
    }
    PersistentVolumeClaimTemplate { metadata: Option<ObjectMeta>, spec: PersistentVolumeClaimSpec }
    PersistentVolumeClaimVolumeSource { claim_name "claimName": String, read_only "readOnly": Option<bool> }
    PersistentVolumeSpec {
        access_modes "accessModes": Option<Vec<String>>,
        aws_elastic_block_store "awsElasticBlockStore": Option<Value>, azure_disk "azureDisk": Option<Value>,
        azure_file "azureFile": Option<Value>, capacity: Option<BTreeMap<String, Quantity>>, cephfs: Option<Value>,
        cinder: Option<Value>, claim_ref "claimRef": Option<ObjectReference>, csi: Option<CSIPersistentVolumeSource>,
        fc: Option<Value>, flex_volume "flexVolume": Option<Value>, flocker: Option<Value>,
        gce_persistent_disk "gcePersistentDisk": Option<Value>, glusterfs: Option<Value>,
        host_path "hostPath": Option<HostPathVolumeSource>, iscsi: Option<Value>, local: Option<LocalVolumeSource>,
        mount_options "mountOptions": Option<Vec<String>>, nfs: Option<NFSVolumeSource>,
        node_affinity "nodeAffinity": Option<VolumeNodeAffinity>,
        persistent_volume_reclaim_policy "persistentVolumeReclaimPolicy": Option<String>,
        photon_persistent_disk "photonPersistentDisk": Option<Value>, portworx_volume "portworxVolume": Option<Value>,
        quobyte: Option<Value>, rbd: Option<Value>, scale_io "scaleIO": Option<Value>,
        storage_class_name "storageClassName": Option<String>, storageos: Option<Value>,
        volume_attributes_class_name "volumeAttributesClassName": Option<String>,
        volume_mode "volumeMode": Option<String>, vsphere_volume "vsphereVolume": Option<Value>,
    }
    PersistentVolumeStatus {
        last_phase_transition_time "lastPhaseTransitionTime": Option<Time>, message: Option<String>,
        phase: Option<String>, reason: Option<String>,
    }
    Pod is NamespaceResourceScope "v1" "" "v1" "pods" {
        metadata: ObjectMeta, spec: Option<PodSpec>, status: Option<PodStatus>,
    }
    PodAffinity {

        preferred_during_scheduling_ignored_during_execution "preferredDuringSchedulingIgnoredDuringExecution": Option<Vec<WeightedPodAffinityTerm>>,
        required_during_scheduling_ignored_during_execution "requiredDuringSchedulingIgnoredDuringExecution": Option<Vec<PodAffinityTerm>>,
    }
    PodAffinityTerm {
        label_selector "labelSelector": Option<LabelSelector>, match_label_keys "matchLabelKeys": Option<Vec<String>>,
        mismatch_label_keys "mismatchLabelKeys": Option<Vec<String>>,
        namespace_selector "namespaceSelector": Option<LabelSelector>, namespaces: Option<Vec<String>>,
        topology_key "topologyKey": String,
    }
    PodAntiAffinity {

        preferred_during_scheduling_ignored_during_execution "preferredDuringSchedulingIgnoredDuringExecution": Option<Vec<WeightedPodAffinityTerm>>,
        required_during_scheduling_ignored_during_execution "requiredDuringSchedulingIgnoredDuringExecution": Option<Vec<PodAffinityTerm>>,
    }
    PodCertificateProjection {
        certificate_chain_path "certificateChainPath": Option<String>,
        credential_bundle_path "credentialBundlePath": Option<String>, key_path "keyPath": Option<String>,
        key_type "keyType": String, max_expiration_seconds "maxExpirationSeconds": Option<i32>,
        signer_name "signerName": String, user: Option<i64>,
        user_annotations "userAnnotations": Option<BTreeMap<String, String>>,
    }
    PodCondition {
        last_probe_time "lastProbeTime": Option<Time>, last_transition_time "lastTransitionTime": Option<Time>,
        message: Option<String>, observed_generation "observedGeneration": Option<i64>, reason: Option<String>,
        status: String, type_ "type": String,
    }
    PodDNSConfig {
        nameservers: Option<Vec<String>>, options: Option<Vec<PodDNSConfigOption>>, searches: Option<Vec<String>>,
    }
    PodDNSConfigOption { name: Option<String>, value: Option<String> }
    PodIP { ip: String }
    PodOS { name: String }
    PodReadinessGate { condition_type "conditionType": String }
    PodResourceClaim {
        name: String, resource_claim_name "resourceClaimName": Option<String>,
        resource_claim_template_name "resourceClaimTemplateName": Option<String>,
    }
    PodResourceClaimStatus { name: String, resource_claim_name "resourceClaimName": Option<String> }
    PodSchedulingGate { name: String }
    PodSecurityContext {
        app_armor_profile "appArmorProfile": Option<AppArmorProfile>, fs_group "fsGroup": Option<i64>,
        fs_group_change_policy "fsGroupChangePolicy": Option<String>, run_as_group "runAsGroup": Option<i64>,
        run_as_non_root "runAsNonRoot": Option<bool>, run_as_user "runAsUser": Option<i64>,
        se_linux_change_policy "seLinuxChangePolicy": Option<String>,
        se_linux_options "seLinuxOptions": Option<SELinuxOptions>,
        seccomp_profile "seccompProfile": Option<SeccompProfile>,
        supplemental_groups "supplementalGroups": Option<Vec<i64>>,
        supplemental_groups_policy "supplementalGroupsPolicy": Option<String>, sysctls: Option<Vec<Sysctl>>,
        windows_options "windowsOptions": Option<Value>,
    }
    PodSpec {
        active_deadline_seconds "activeDeadlineSeconds": Option<i64>, affinity: Option<Affinity>,
        automount_service_account_token "automountServiceAccountToken": Option<bool>, containers: Vec<Container>,
        dns_config "dnsConfig": Option<PodDNSConfig>, dns_policy "dnsPolicy": Option<String>,
        enable_service_links "enableServiceLinks": Option<bool>,
        ephemeral_containers "ephemeralContainers": Option<Vec<EphemeralContainer>>,
        eviction_responders "evictionResponders": Option<Vec<Value>>,
        host_aliases "hostAliases": Option<Vec<HostAlias>>, host_ipc "hostIPC": Option<bool>,
        host_network "hostNetwork": Option<bool>, host_pid "hostPID": Option<bool>,
        host_users "hostUsers": Option<bool>, hostname: Option<String>,
        hostname_override "hostnameOverride": Option<String>,
        image_pull_secrets "imagePullSecrets": Option<Vec<Value>>,
        init_containers "initContainers": Option<Vec<Container>>, node_name "nodeName": Option<String>,
        node_selector "nodeSelector": Option<BTreeMap<String, String>>, os: Option<PodOS>,
        overhead: Option<BTreeMap<String, Quantity>>, preemption_policy "preemptionPolicy": Option<String>,
        priority: Option<i32>, priority_class_name "priorityClassName": Option<String>,
        readiness_gates "readinessGates": Option<Vec<PodReadinessGate>>,
        resource_claims "resourceClaims": Option<Vec<PodResourceClaim>>, resources: Option<ResourceRequirements>,
        restart_policy "restartPolicy": Option<String>, runtime_class_name "runtimeClassName": Option<String>,
        scheduler_name "schedulerName": Option<String>,
        scheduling_gates "schedulingGates": Option<Vec<PodSchedulingGate>>,
        scheduling_group "schedulingGroup": Option<Value>,
        security_context "securityContext": Option<PodSecurityContext>,
        service_account "serviceAccount": Option<String>, service_account_name "serviceAccountName": Option<String>,
        set_hostname_as_fqdn "setHostnameAsFQDN": Option<bool>,
        share_process_namespace "shareProcessNamespace": Option<bool>, subdomain: Option<String>,
        termination_grace_period_seconds "terminationGracePeriodSeconds": Option<i64>,
        tolerations: Option<Vec<Toleration>>,
        topology_spread_constraints "topologySpreadConstraints": Option<Vec<TopologySpreadConstraint>>,
        volumes: Option<Vec<Volume>>,
    }
    PodStatus {
        allocated_resources "allocatedResources": Option<BTreeMap<String, Quantity>>,
        conditions: Option<Vec<PodCondition>>, container_statuses "containerStatuses": Option<Vec<ContainerStatus>>,
        ephemeral_container_statuses "ephemeralContainerStatuses": Option<Vec<ContainerStatus>>,
        extended_resource_claim_status "extendedResourceClaimStatus": Option<Value>, host_ip "hostIP": Option<String>,
        host_ips "hostIPs": Option<Vec<HostIP>>,
        init_container_statuses "initContainerStatuses": Option<Vec<ContainerStatus>>, message: Option<String>,
        node_allocatable_resource_claim_statuses "nodeAllocatableResourceClaimStatuses": Option<Vec<Value>>,
        nominated_node_name "nominatedNodeName": Option<String>,
        observed_generation "observedGeneration": Option<i64>, phase: Option<String>, pod_ip "podIP": Option<String>,
        pod_ips "podIPs": Option<Vec<PodIP>>, qos_class "qosClass": Option<String>, reason: Option<String>,
        resize: Option<String>, resource_claim_statuses "resourceClaimStatuses": Option<Vec<PodResourceClaimStatus>>,
        resources: Option<ResourceRequirements>, start_time "startTime": Option<Time>,
        volume_health "volumeHealth": Option<Vec<Value>>,
    }
    PodTemplateSpec { metadata: Option<ObjectMeta>, spec: Option<PodSpec> }
    PortStatus { error: Option<String>, port: i32, protocol: String }
    PreferredSchedulingTerm { preference: NodeSelectorTerm, weight: i32 }
    Probe {
        exec: Option<ExecAction>, failure_threshold "failureThreshold": Option<i32>, grpc: Option<GRPCAction>,
        http_get "httpGet": Option<HTTPGetAction>, initial_delay_seconds "initialDelaySeconds": Option<i32>,
        period_seconds "periodSeconds": Option<i32>, success_threshold "successThreshold": Option<i32>,
        tcp_socket "tcpSocket": Option<TCPSocketAction>,
        termination_grace_period_seconds "terminationGracePeriodSeconds": Option<i64>,
        timeout_seconds "timeoutSeconds": Option<i32>,
    }
    ProjectedVolumeSource {
        default_mode "defaultMode": Option<i32>, default_user "defaultUser": Option<i64>,
        sources: Option<Vec<VolumeProjection>>,
    }
    ReplicationController is NamespaceResourceScope "v1" "" "v1" "replicationcontrollers" {
        metadata: ObjectMeta, spec: Option<ReplicationControllerSpec>, status: Option<ReplicationControllerStatus>,
    }
    ReplicationControllerCondition {
        last_transition_time "lastTransitionTime": Option<Time>, message: Option<String>, reason: Option<String>,
        status: String, type_ "type": String,
    }
    ReplicationControllerSpec {
        min_ready_seconds "minReadySeconds": Option<i32>, replicas: Option<i32>,
        selector: Option<BTreeMap<String, String>>, template: Option<PodTemplateSpec>,
    }
    ReplicationControllerStatus {
        available_replicas "availableReplicas": Option<i32>, conditions: Option<Vec<ReplicationControllerCondition>>,
        fully_labeled_replicas "fullyLabeledReplicas": Option<i32>,
        observed_generation "observedGeneration": Option<i64>, ready_replicas "readyReplicas": Option<i32>,
        replicas: i32,
    }
    ResourceClaim { name: String, request: Option<String> }
    ResourceFieldSelector {
        container_name "containerName": Option<String>, divisor: Option<Quantity>, resource: String,
    }
    ResourceQuota is NamespaceResourceScope "v1" "" "v1" "resourcequotas" {
        metadata: ObjectMeta, spec: Option<ResourceQuotaSpec>, status: Option<ResourceQuotaStatus>,
    }
    ResourceQuotaSpec {
        hard: Option<BTreeMap<String, Quantity>>, scope_selector "scopeSelector": Option<Value>,
        scopes: Option<Vec<String>>,
    }
    ResourceQuotaStatus { hard: Option<BTreeMap<String, Quantity>>, used: Option<BTreeMap<String, Quantity>> }
    ResourceRequirements {
        claims: Option<Vec<ResourceClaim>>, limits: Option<BTreeMap<String, Quantity>>,
        requests: Option<BTreeMap<String, Quantity>>,
    }
    SELinuxOptions {
        level: Option<String>, role: Option<String>, type_ "type": Option<String>, user: Option<String>,
    }
    SeccompProfile { localhost_profile "localhostProfile": Option<String>, type_ "type": String }
    Secret is NamespaceResourceScope "v1" "" "v1" "secrets" {
        data: Option<BTreeMap<String, ByteString>>, immutable: Option<bool>, metadata: ObjectMeta,
        string_data "stringData": Option<BTreeMap<String, String>>, type_ "type": Option<String>,
    }
    SecretEnvSource { name: String, optional: Option<bool> }
    SecretKeySelector { key: String, name: String, optional: Option<bool> }
    SecretProjection { items: Option<Vec<KeyToPath>>, name: String, optional: Option<bool> }
    SecretVolumeSource {
        default_mode "defaultMode": Option<i32>, default_user "defaultUser": Option<i64>,
        items: Option<Vec<KeyToPath>>, optional: Option<bool>, secret_name "secretName": Option<String>,
    }
    SecurityContext {
        allow_privilege_escalation "allowPrivilegeEscalation": Option<bool>,
        app_armor_profile "appArmorProfile": Option<AppArmorProfile>, capabilities: Option<Capabilities>,
        privileged: Option<bool>, proc_mount "procMount": Option<String>,
        read_only_root_filesystem "readOnlyRootFilesystem": Option<bool>, run_as_group "runAsGroup": Option<i64>,
        run_as_non_root "runAsNonRoot": Option<bool>, run_as_user "runAsUser": Option<i64>,
        se_linux_options "seLinuxOptions": Option<SELinuxOptions>,
        seccomp_profile "seccompProfile": Option<SeccompProfile>, windows_options "windowsOptions": Option<Value>,
    }
    Service is NamespaceResourceScope "v1" "" "v1" "services" {
        metadata: ObjectMeta, spec: Option<ServiceSpec>, status: Option<ServiceStatus>,
    }
    ServiceAccount is NamespaceResourceScope "v1" "" "v1" "serviceaccounts" {
        automount_service_account_token "automountServiceAccountToken": Option<bool>,
        image_pull_secrets "imagePullSecrets": Option<Vec<Value>>, metadata: ObjectMeta,
        secrets: Option<Vec<ObjectReference>>,
    }
    ServiceAccountTokenProjection {
        audience: Option<String>, expiration_seconds "expirationSeconds": Option<i64>, path: String,
        user: Option<i64>,
    }
    ServicePort {
        app_protocol "appProtocol": Option<String>, name: Option<String>, node_port "nodePort": Option<i32>,
        port: i32, protocol: Option<String>, target_port "targetPort": Option<IntOrString>,
    }
    ServiceSpec {
        allocate_load_balancer_node_ports "allocateLoadBalancerNodePorts": Option<bool>,
        cluster_ip "clusterIP": Option<String>, cluster_ips "clusterIPs": Option<Vec<String>>,
        external_ips "externalIPs": Option<Vec<String>>, external_name "externalName": Option<String>,
        external_traffic_policy "externalTrafficPolicy": Option<String>,
        health_check_node_port "healthCheckNodePort": Option<i32>,
        internal_traffic_policy "internalTrafficPolicy": Option<String>,
        ip_families "ipFamilies": Option<Vec<String>>, ip_family_policy "ipFamilyPolicy": Option<String>,
        load_balancer_class "loadBalancerClass": Option<String>, load_balancer_ip "loadBalancerIP": Option<String>,
        load_balancer_source_ranges "loadBalancerSourceRanges": Option<Vec<String>>, ports: Option<Vec<ServicePort>>,
        publish_not_ready_addresses "publishNotReadyAddresses": Option<bool>,
        selector: Option<BTreeMap<String, String>>, session_affinity "sessionAffinity": Option<String>,
        session_affinity_config "sessionAffinityConfig": Option<Value>,
        traffic_distribution "trafficDistribution": Option<String>, type_ "type": Option<String>,
    }
    ServiceStatus { conditions: Option<Vec<Condition>>, load_balancer "loadBalancer": Option<LoadBalancerStatus> }
    SleepAction { seconds: i64 }
    Sysctl { name: String, value: String }
    TCPSocketAction { host: Option<String>, port: IntOrString }
    Taint { effect: String, key: String, time_added "timeAdded": Option<Time>, value: Option<String> }
    Toleration {
        effect: Option<String>, key: Option<String>, operator: Option<String>,
        toleration_seconds "tolerationSeconds": Option<i64>, value: Option<String>,
    }
    TopologySelectorLabelRequirement { key: String, values: Vec<String> }
    TopologySelectorTerm {
        match_label_expressions "matchLabelExpressions": Option<Vec<TopologySelectorLabelRequirement>>,
    }
    TopologySpreadConstraint {
        label_selector "labelSelector": Option<LabelSelector>, match_label_keys "matchLabelKeys": Option<Vec<String>>,
        max_skew "maxSkew": i32, min_domains "minDomains": Option<i32>,
        node_affinity_policy "nodeAffinityPolicy": Option<String>,
        node_taints_policy "nodeTaintsPolicy": Option<String>, topology_key "topologyKey": String,
        when_unsatisfiable "whenUnsatisfiable": String,
    }
    Volume {
        aws_elastic_block_store "awsElasticBlockStore": Option<Value>, azure_disk "azureDisk": Option<Value>,
        azure_file "azureFile": Option<Value>, cephfs: Option<Value>, cinder: Option<Value>,
        config_map "configMap": Option<ConfigMapVolumeSource>, csi: Option<CSIVolumeSource>,
        downward_api "downwardAPI": Option<DownwardAPIVolumeSource>,
        empty_dir "emptyDir": Option<EmptyDirVolumeSource>, ephemeral: Option<EphemeralVolumeSource>,
        fc: Option<Value>, flex_volume "flexVolume": Option<Value>, flocker: Option<Value>,
        gce_persistent_disk "gcePersistentDisk": Option<Value>, git_repo "gitRepo": Option<Value>,
        glusterfs: Option<Value>, host_path "hostPath": Option<HostPathVolumeSource>,
        image: Option<ImageVolumeSource>, iscsi: Option<Value>, name: String, nfs: Option<NFSVolumeSource>,
        persistent_volume_claim "persistentVolumeClaim": Option<PersistentVolumeClaimVolumeSource>,
        photon_persistent_disk "photonPersistentDisk": Option<Value>, portworx_volume "portworxVolume": Option<Value>,
        projected: Option<ProjectedVolumeSource>, quobyte: Option<Value>, rbd: Option<Value>,
        scale_io "scaleIO": Option<Value>, secret: Option<SecretVolumeSource>, storageos: Option<Value>,
        vsphere_volume "vsphereVolume": Option<Value>,
    }
    VolumeDevice { device_path "devicePath": String, name: String }
    VolumeMount {
        bind_mount_options "bindMountOptions": Option<Vec<String>>, mount_path "mountPath": String,
        mount_propagation "mountPropagation": Option<String>, name: String, read_only "readOnly": Option<bool>,
        recursive_read_only "recursiveReadOnly": Option<String>, sub_path "subPath": Option<String>,
        sub_path_expr "subPathExpr": Option<String>,
    }
    VolumeMountStatus {
        mount_path "mountPath": String, name: String, read_only "readOnly": Option<bool>,
        recursive_read_only "recursiveReadOnly": Option<String>, volume_status "volumeStatus": Option<Value>,
    }
    VolumeNodeAffinity { required: Option<NodeSelector> }
    VolumeProjection {
        cluster_trust_bundle "clusterTrustBundle": Option<ClusterTrustBundleProjection>,
        config_map "configMap": Option<ConfigMapProjection>,
        downward_api "downwardAPI": Option<DownwardAPIProjection>,
        pod_certificate "podCertificate": Option<PodCertificateProjection>, secret: Option<SecretProjection>,
        service_account_token "serviceAccountToken": Option<ServiceAccountTokenProjection>,
    }
    VolumeResourceRequirements {
        limits: Option<BTreeMap<String, Quantity>>, requests: Option<BTreeMap<String, Quantity>>,
    }
    WeightedPodAffinityTerm { pod_affinity_term "podAffinityTerm": PodAffinityTerm, weight: i32 }
}
