//! The types of the groups without workloads.

/// Types of `admissionregistration`.
pub mod admissionregistration {
    /// Types of `admissionregistration/v1`.
    pub mod v1 {
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
        use serde_json::Value;

        types! {
            ExpressionWarning { field_ref "fieldRef": String, warning: String }
            MatchResources {
                exclude_resource_rules "excludeResourceRules": Option<Vec<NamedRuleWithOperations>>,
                match_policy "matchPolicy": Option<String>,
                namespace_selector "namespaceSelector": Option<LabelSelector>,
                object_selector "objectSelector": Option<LabelSelector>,
                resource_rules "resourceRules": Option<Vec<NamedRuleWithOperations>>,
            }
            NamedRuleWithOperations {
                api_groups "apiGroups": Option<Vec<String>>, api_versions "apiVersions": Option<Vec<String>>,
                operations: Option<Vec<String>>, resource_names "resourceNames": Option<Vec<String>>,
                resources: Option<Vec<String>>, scope: Option<String>,
            }
            ParamKind { api_version "apiVersion": Option<String>, kind: Option<String> }
            TypeChecking { expression_warnings "expressionWarnings": Option<Vec<ExpressionWarning>> }
            ValidatingAdmissionPolicy is ClusterResourceScope
                "admissionregistration.k8s.io/v1" "admissionregistration.k8s.io" "v1" "validatingadmissionpolicies" {
                metadata: ObjectMeta, spec: Option<ValidatingAdmissionPolicySpec>,
                status: Option<ValidatingAdmissionPolicyStatus>,
            }
            ValidatingAdmissionPolicySpec {
                audit_annotations "auditAnnotations": Option<Vec<Value>>,
                failure_policy "failurePolicy": Option<String>,
                match_conditions "matchConditions": Option<Vec<Value>>,
                match_constraints "matchConstraints": Option<MatchResources>,
                param_kind "paramKind": Option<ParamKind>, validations: Option<Vec<Validation>>,
                variables: Option<Vec<Variable>>,
            }
            ValidatingAdmissionPolicyStatus {
                conditions: Option<Vec<Condition>>, observed_generation "observedGeneration": Option<i64>,
                type_checking "typeChecking": Option<TypeChecking>,
            }
            Validation {
                expression: String, message: Option<String>, message_expression "messageExpression": Option<String>,
                reason: Option<String>,
            }
            Variable { expression: String, name: String }
        }
    }
}

/// Types of `authentication`.
pub mod authentication {
    /// Types of `authentication/v1`.
    pub mod v1 {
        use std::collections::BTreeMap;

        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

        types! {
            BoundObjectReference {
                api_version "apiVersion": Option<String>, kind: Option<String>, name: Option<String>,
                uid: Option<String>,
            }
            TokenRequest is SubResourceScope "authentication.k8s.io/v1" "authentication.k8s.io" "v1" "token" {
                metadata: ObjectMeta, spec: Option<TokenRequestSpec>, status: Option<TokenRequestStatus>,
            }
            TokenRequestSpec {
                attestations: Option<BTreeMap<String, Vec<String>>>, audiences: Option<Vec<String>>,
                bound_object_ref "boundObjectRef": Option<BoundObjectReference>,
                expiration_seconds "expirationSeconds": Option<i64>,
            }
            TokenRequestStatus { expiration_timestamp "expirationTimestamp": Option<Time>, token: Option<String> }
        }
    }
}

/// Types of `authorization`.
pub mod authorization {
    /// Types of `authorization/v1`.
    pub mod v1 {
        use std::collections::BTreeMap;

        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelectorRequirement, ObjectMeta};
        use serde_json::Value;

        types! {
            LabelSelectorAttributes {
                raw_selector "rawSelector": Option<String>, requirements: Option<Vec<LabelSelectorRequirement>>,
            }
            ResourceAttributes {
                field_selector "fieldSelector": Option<Value>, group: Option<String>,
                label_selector "labelSelector": Option<LabelSelectorAttributes>, name: Option<String>,
                namespace: Option<String>, resource: Option<String>, subresource: Option<String>,
                verb: Option<String>, version: Option<String>,
            }
            SubjectAccessReview is ClusterResourceScope
                "authorization.k8s.io/v1" "authorization.k8s.io" "v1" "subjectaccessreviews" {
                metadata: ObjectMeta, spec: SubjectAccessReviewSpec, status: Option<SubjectAccessReviewStatus>,
            }
            SubjectAccessReviewSpec {
                extra: Option<BTreeMap<String, Vec<String>>>, groups: Option<Vec<String>>,
                non_resource_attributes "nonResourceAttributes": Option<Value>,
                resource_attributes "resourceAttributes": Option<ResourceAttributes>, uid: Option<String>,
                user: Option<String>,
            }
            SubjectAccessReviewStatus {
                allowed: bool, denied: Option<bool>, evaluation_error "evaluationError": Option<String>,
                reason: Option<String>,
            }
        }
    }
}

/// Types of `certificates`.
pub mod certificates {
    /// Types of `certificates/v1`.
    pub mod v1 {
        use std::collections::BTreeMap;

        use kubewright::k8s_openapi::ByteString;
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
        use serde_json::Value;

        types! {
            CertificateSigningRequest is ClusterResourceScope
                "certificates.k8s.io/v1" "certificates.k8s.io" "v1" "certificatesigningrequests" {
                metadata: ObjectMeta, spec: CertificateSigningRequestSpec,
                status: Option<CertificateSigningRequestStatus>,
            }
            CertificateSigningRequestCondition {
                last_transition_time "lastTransitionTime": Option<Time>,
                last_update_time "lastUpdateTime": Option<Time>, message: Option<String>, reason: Option<String>,
                status: String, type_ "type": String,
            }
            CertificateSigningRequestSpec {
                expiration_seconds "expirationSeconds": Option<i32>, extra: Option<BTreeMap<String, Vec<String>>>,
                groups: Option<Vec<String>>, request: ByteString, signer_name "signerName": String,
                uid: Option<String>, usages: Option<Vec<String>>, username: Option<String>,
            }
            CertificateSigningRequestStatus {
                certificate: Option<ByteString>, conditions: Option<Vec<CertificateSigningRequestCondition>>,
            }
            ClusterTrustBundle is ClusterResourceScope
                "certificates.k8s.io/v1" "certificates.k8s.io" "v1" "clustertrustbundles" {
                metadata: ObjectMeta, spec: ClusterTrustBundleSpec,
            }
            ClusterTrustBundleSpec { signer_name "signerName": Option<String>, trust_bundle "trustBundle": String }
            PodCertificateRequest is NamespaceResourceScope
                "certificates.k8s.io/v1" "certificates.k8s.io" "v1" "podcertificaterequests" {
                metadata: ObjectMeta, spec: Option<Value>, status: Option<Value>,
            }
        }
    }
}

/// Types of `coordination`.
pub mod coordination {
    /// Types of `coordination/v1`.
    pub mod v1 {
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

        types! {
            Lease is NamespaceResourceScope "coordination.k8s.io/v1" "coordination.k8s.io" "v1" "leases" {
                metadata: ObjectMeta, spec: Option<LeaseSpec>,
            }
            LeaseSpec {
                acquire_time "acquireTime": Option<MicroTime>, holder_identity "holderIdentity": Option<String>,
                lease_duration_seconds "leaseDurationSeconds": Option<i32>,
                lease_transitions "leaseTransitions": Option<i32>, preferred_holder "preferredHolder": Option<String>,
                renew_time "renewTime": Option<MicroTime>, strategy: Option<String>,
            }
        }
    }
}

/// Types of `discovery`.
pub mod discovery {
    /// Types of `discovery/v1`.
    pub mod v1 {
        use std::collections::BTreeMap;

        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

        types! {
            Endpoint {
                addresses: Vec<String>, conditions: Option<EndpointConditions>,
                deprecated_topology "deprecatedTopology": Option<BTreeMap<String, String>>,
                hints: Option<EndpointHints>, hostname: Option<String>, node_name "nodeName": Option<String>,
                target_ref "targetRef": Option<crate::api::core::v1::ObjectReference>, zone: Option<String>,
            }
            EndpointConditions { ready: Option<bool>, serving: Option<bool>, terminating: Option<bool> }
            EndpointHints { for_nodes "forNodes": Option<Vec<ForNode>>, for_zones "forZones": Option<Vec<ForZone>> }
            EndpointPort {
                app_protocol "appProtocol": Option<String>, name: Option<String>, port: Option<i32>,
                protocol: Option<String>,
            }
            EndpointSlice is NamespaceResourceScope "discovery.k8s.io/v1" "discovery.k8s.io" "v1" "endpointslices" {
                address_type "addressType": String, endpoints: Option<Vec<Endpoint>>, metadata: ObjectMeta,
                ports: Option<Vec<EndpointPort>>,
            }
            ForNode { name: String }
            ForZone { name: String }
        }
    }
}

/// Types of `networking`.
pub mod networking {
    /// Types of `networking/v1`.
    pub mod v1 {
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
        use serde_json::Value;

        types! {
            IPAddress is ClusterResourceScope "networking.k8s.io/v1" "networking.k8s.io" "v1" "ipaddresses" {
                metadata: ObjectMeta, spec: IPAddressSpec,
            }
            IPAddressSpec { parent_ref "parentRef": Option<Value> }
            ServiceCIDR is ClusterResourceScope "networking.k8s.io/v1" "networking.k8s.io" "v1" "servicecidrs" {
                metadata: ObjectMeta, spec: Option<ServiceCIDRSpec>, status: Option<ServiceCIDRStatus>,
            }
            ServiceCIDRSpec { cidrs: Option<Vec<String>> }
            ServiceCIDRStatus { conditions: Option<Vec<Condition>> }
        }
    }
}

/// Types of `node`.
pub mod node {
    /// Types of `node/v1`.
    pub mod v1 {
        use std::collections::BTreeMap;

        use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
        use serde_json::Value;

        types! {
            Overhead { pod_fixed "podFixed": Option<BTreeMap<String, Quantity>> }
            RuntimeClass is ClusterResourceScope "node.k8s.io/v1" "node.k8s.io" "v1" "runtimeclasses" {
                handler: String, metadata: ObjectMeta, overhead: Option<Overhead>, scheduling: Option<Value>,
            }
        }
    }
}

/// Types of `rbac`.
pub mod rbac {
    /// Types of `rbac/v1`.
    pub mod v1 {
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

        types! {
            AggregationRule { cluster_role_selectors "clusterRoleSelectors": Option<Vec<LabelSelector>> }
            ClusterRole is ClusterResourceScope
                "rbac.authorization.k8s.io/v1" "rbac.authorization.k8s.io" "v1" "clusterroles" {
                aggregation_rule "aggregationRule": Option<AggregationRule>, metadata: ObjectMeta,
                rules: Option<Vec<PolicyRule>>,
            }
            PolicyRule {
                api_groups "apiGroups": Option<Vec<String>>, non_resource_urls "nonResourceURLs": Option<Vec<String>>,
                resource_names "resourceNames": Option<Vec<String>>, resources: Option<Vec<String>>,
                verbs: Vec<String>,
            }
        }
    }
}

/// Types of `resource`.
pub mod resource {
    /// Types of `resource/v1`.
    pub mod v1 {
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
        use kubewright::k8s_openapi::apimachinery::pkg::runtime::RawExtension;
        use serde_json::Value;

        types! {
            AllocatedDeviceStatus {
                conditions: Option<Vec<Condition>>, data: Option<RawExtension>, device: String, driver: String,
                network_data "networkData": Option<Value>, pool: String, share_id "shareID": Option<String>,
            }
            AllocationResult {
                allocation_timestamp "allocationTimestamp": Option<Time>, devices: Option<DeviceAllocationResult>,
                node_selector "nodeSelector": Option<crate::api::core::v1::NodeSelector>,
            }
            DeviceAllocationConfiguration { opaque: Option<Value>, requests: Option<Vec<String>>, source: String }
            DeviceAllocationResult {
                config: Option<Vec<DeviceAllocationConfiguration>>, results: Option<Vec<Value>>,
            }
            DeviceClaim {
                config: Option<Vec<DeviceClaimConfiguration>>, constraints: Option<Vec<DeviceConstraint>>,
                requests: Option<Vec<DeviceRequest>>,
            }
            DeviceClaimConfiguration { opaque: Option<Value>, requests: Option<Vec<String>> }
            DeviceConstraint {
                distinct_attribute "distinctAttribute": Option<String>,
                match_attribute "matchAttribute": Option<String>, requests: Option<Vec<String>>,
            }
            DeviceRequest {
                exactly: Option<Value>, first_available "firstAvailable": Option<Vec<Value>>, name: String,
            }
            ResourceClaim is NamespaceResourceScope "resource.k8s.io/v1" "resource.k8s.io" "v1" "resourceclaims" {
                metadata: ObjectMeta, spec: ResourceClaimSpec, status: Option<ResourceClaimStatus>,
            }
            ResourceClaimConsumerReference {
                api_group "apiGroup": Option<String>, name: String, resource: String, uid: String,
            }
            ResourceClaimSpec { devices: Option<DeviceClaim> }
            ResourceClaimStatus {
                allocation: Option<AllocationResult>, devices: Option<Vec<AllocatedDeviceStatus>>,
                reserved_for "reservedFor": Option<Vec<ResourceClaimConsumerReference>>,
            }
            ResourceClaimTemplate is NamespaceResourceScope
                "resource.k8s.io/v1" "resource.k8s.io" "v1" "resourceclaimtemplates" {
                metadata: ObjectMeta, spec: ResourceClaimTemplateSpec,
            }
            ResourceClaimTemplateSpec { metadata: Option<ObjectMeta>, spec: ResourceClaimSpec }
        }
    }
}

/// Types of `storage`.
pub mod storage {
    /// Types of `storage/v1`.
    pub mod v1 {
        use std::collections::BTreeMap;

        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

        types! {
            StorageClass is ClusterResourceScope "storage.k8s.io/v1" "storage.k8s.io" "v1" "storageclasses" {
                allow_volume_expansion "allowVolumeExpansion": Option<bool>,
                allowed_topologies "allowedTopologies": Option<Vec<crate::api::core::v1::TopologySelectorTerm>>,
                metadata: ObjectMeta, mount_options "mountOptions": Option<Vec<String>>,
                parameters: Option<BTreeMap<String, String>>, provisioner: String,
                reclaim_policy "reclaimPolicy": Option<String>,
                volume_binding_mode "volumeBindingMode": Option<String>,
            }
            VolumeAttributesClass is ClusterResourceScope
                "storage.k8s.io/v1" "storage.k8s.io" "v1" "volumeattributesclasses" {
                driver_name "driverName": String, metadata: ObjectMeta, parameters: Option<BTreeMap<String, String>>,
            }
        }
    }
}

/// Types of `storagemigration`.
pub mod storagemigration {
    /// Types of `storagemigration/v1`.
    pub mod v1 {
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

        types! {
            GroupResource { group: String, resource: String }
            StorageVersionMigration is ClusterResourceScope
                "storagemigration.k8s.io/v1" "storagemigration.k8s.io" "v1" "storageversionmigrations" {
                metadata: ObjectMeta, spec: StorageVersionMigrationSpec,
                status: Option<StorageVersionMigrationStatus>,
            }
            StorageVersionMigrationSpec { resource: GroupResource }
            StorageVersionMigrationStatus {
                conditions: Option<Vec<Condition>>, resource_version "resourceVersion": Option<String>,
            }
        }
    }
}
