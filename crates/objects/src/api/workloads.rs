//! The types of workloads: `apps`, `batch`, and what scales and protects them.

/// Types of `apps`.
pub mod apps {
    /// Types of `apps/v1`.
    pub mod v1 {
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
        use kubewright::k8s_openapi::apimachinery::pkg::runtime::RawExtension;
        use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

        types! {
            ControllerRevision is NamespaceResourceScope "apps/v1" "apps" "v1" "controllerrevisions" {
                data: Option<RawExtension>, metadata: ObjectMeta, revision: i64,
            }
            DaemonSet is NamespaceResourceScope "apps/v1" "apps" "v1" "daemonsets" {
                metadata: ObjectMeta, spec: Option<DaemonSetSpec>, status: Option<DaemonSetStatus>,
            }
            DaemonSetCondition {
                last_transition_time "lastTransitionTime": Option<Time>, message: Option<String>,
                reason: Option<String>, status: String, type_ "type": String,
            }
            DaemonSetSpec {
                min_ready_seconds "minReadySeconds": Option<i32>,
                revision_history_limit "revisionHistoryLimit": Option<i32>, selector: LabelSelector,
                template: crate::api::core::v1::PodTemplateSpec,
                update_strategy "updateStrategy": Option<DaemonSetUpdateStrategy>,
            }
            DaemonSetStatus {
                collision_count "collisionCount": Option<i32>, conditions: Option<Vec<DaemonSetCondition>>,
                current_number_scheduled "currentNumberScheduled": i32,
                desired_number_scheduled "desiredNumberScheduled": i32,
                number_available "numberAvailable": Option<i32>, number_misscheduled "numberMisscheduled": i32,
                number_ready "numberReady": i32, number_unavailable "numberUnavailable": Option<i32>,
                observed_generation "observedGeneration": Option<i64>,
                updated_number_scheduled "updatedNumberScheduled": Option<i32>,
            }
            DaemonSetUpdateStrategy {
                rolling_update "rollingUpdate": Option<RollingUpdateDaemonSet>, type_ "type": Option<String>,
            }
            Deployment is NamespaceResourceScope "apps/v1" "apps" "v1" "deployments" {
                metadata: ObjectMeta, spec: Option<DeploymentSpec>, status: Option<DeploymentStatus>,
            }
            DeploymentCondition {
                last_transition_time "lastTransitionTime": Option<Time>,
                last_update_time "lastUpdateTime": Option<Time>, message: Option<String>, reason: Option<String>,
                status: String, type_ "type": String,
            }
            DeploymentSpec {
                min_ready_seconds "minReadySeconds": Option<i32>, paused: Option<bool>,
                progress_deadline_seconds "progressDeadlineSeconds": Option<i32>, replicas: Option<i32>,
                revision_history_limit "revisionHistoryLimit": Option<i32>, selector: LabelSelector,
                strategy: Option<DeploymentStrategy>, template: crate::api::core::v1::PodTemplateSpec,
            }
            DeploymentStatus {
                available_replicas "availableReplicas": Option<i32>, collision_count "collisionCount": Option<i32>,
                conditions: Option<Vec<DeploymentCondition>>, observed_generation "observedGeneration": Option<i64>,
                ready_replicas "readyReplicas": Option<i32>, replicas: Option<i32>,
                terminating_replicas "terminatingReplicas": Option<i32>,
                unavailable_replicas "unavailableReplicas": Option<i32>,
                updated_replicas "updatedReplicas": Option<i32>,
            }
            DeploymentStrategy {
                rolling_update "rollingUpdate": Option<RollingUpdateDeployment>, type_ "type": Option<String>,
            }
            ReplicaSet is NamespaceResourceScope "apps/v1" "apps" "v1" "replicasets" {
                metadata: ObjectMeta, spec: Option<ReplicaSetSpec>, status: Option<ReplicaSetStatus>,
            }
            ReplicaSetCondition {
                last_transition_time "lastTransitionTime": Option<Time>, message: Option<String>,
                reason: Option<String>, status: String, type_ "type": String,
            }
            ReplicaSetSpec {
                min_ready_seconds "minReadySeconds": Option<i32>, replicas: Option<i32>, selector: LabelSelector,
                template: Option<crate::api::core::v1::PodTemplateSpec>,
            }
            ReplicaSetStatus {
                available_replicas "availableReplicas": Option<i32>, conditions: Option<Vec<ReplicaSetCondition>>,
                fully_labeled_replicas "fullyLabeledReplicas": Option<i32>,
                observed_generation "observedGeneration": Option<i64>, ready_replicas "readyReplicas": Option<i32>,
                replicas: i32, terminating_replicas "terminatingReplicas": Option<i32>,
            }
            RollingUpdateDaemonSet {
                max_surge "maxSurge": Option<IntOrString>, max_unavailable "maxUnavailable": Option<IntOrString>,
            }
            RollingUpdateDeployment {
                max_surge "maxSurge": Option<IntOrString>, max_unavailable "maxUnavailable": Option<IntOrString>,
            }
            RollingUpdateStatefulSetStrategy {
                max_unavailable "maxUnavailable": Option<IntOrString>, partition: Option<i32>,
            }
            StatefulSet is NamespaceResourceScope "apps/v1" "apps" "v1" "statefulsets" {
                metadata: ObjectMeta, spec: Option<StatefulSetSpec>, status: Option<StatefulSetStatus>,
            }
            StatefulSetCondition {
                last_transition_time "lastTransitionTime": Option<Time>, message: Option<String>,
                reason: Option<String>, status: String, type_ "type": String,
            }
            StatefulSetOrdinals { start: Option<i32> }
            StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted "whenDeleted": Option<String>, when_scaled "whenScaled": Option<String>,
            }
            StatefulSetSpec {
                min_ready_seconds "minReadySeconds": Option<i32>, ordinals: Option<StatefulSetOrdinals>,
                persistent_volume_claim_retention_policy "persistentVolumeClaimRetentionPolicy": Option<StatefulSetPersistentVolumeClaimRetentionPolicy>,
                pod_management_policy "podManagementPolicy": Option<String>, replicas: Option<i32>,
                revision_history_limit "revisionHistoryLimit": Option<i32>, selector: LabelSelector,
                service_name "serviceName": Option<String>, template: crate::api::core::v1::PodTemplateSpec,
                update_strategy "updateStrategy": Option<StatefulSetUpdateStrategy>,
                volume_claim_templates "volumeClaimTemplates": Option<Vec<crate::api::core::v1::PersistentVolumeClaim>>,
            }
            StatefulSetStatus {
                available_replicas "availableReplicas": Option<i32>, collision_count "collisionCount": Option<i32>,
                conditions: Option<Vec<StatefulSetCondition>>, current_replicas "currentReplicas": Option<i32>,
                current_revision "currentRevision": Option<String>,
                observed_generation "observedGeneration": Option<i64>, ready_replicas "readyReplicas": Option<i32>,
                replicas: i32, update_revision "updateRevision": Option<String>,
                updated_replicas "updatedReplicas": Option<i32>,
            }
            StatefulSetUpdateStrategy {
                rolling_update "rollingUpdate": Option<RollingUpdateStatefulSetStrategy>,
                type_ "type": Option<String>,
            }
        }
    }
}

/// Types of `autoscaling`.
pub mod autoscaling {
    /// Types of `autoscaling/v2`.
    pub mod v2 {
        use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};

        types! {
            ContainerResourceMetricSource { container: String, name: String, target: MetricTarget }
            ContainerResourceMetricStatus { container: String, current: MetricValueStatus, name: String }
            CrossVersionObjectReference { api_version "apiVersion": Option<String>, kind: String, name: String }
            ExternalMetricSource { metric: MetricIdentifier, target: MetricTarget }
            ExternalMetricStatus { current: MetricValueStatus, metric: MetricIdentifier }
            HPAScalingPolicy { period_seconds "periodSeconds": i32, type_ "type": String, value: i32 }
            HPAScalingRules {
                policies: Option<Vec<HPAScalingPolicy>>, select_policy "selectPolicy": Option<String>,
                stabilization_window_seconds "stabilizationWindowSeconds": Option<i32>, tolerance: Option<Quantity>,
            }
            HorizontalPodAutoscaler is NamespaceResourceScope
                "autoscaling/v2" "autoscaling" "v2" "horizontalpodautoscalers" {
                metadata: ObjectMeta, spec: HorizontalPodAutoscalerSpec,
                status: Option<HorizontalPodAutoscalerStatus>,
            }
            HorizontalPodAutoscalerBehavior {
                scale_down "scaleDown": Option<HPAScalingRules>, scale_up "scaleUp": Option<HPAScalingRules>,
            }
            HorizontalPodAutoscalerCondition {
                last_transition_time "lastTransitionTime": Option<Time>, message: Option<String>,
                observed_generation "observedGeneration": Option<i64>, reason: Option<String>, status: String,
                type_ "type": String,
            }
            HorizontalPodAutoscalerSpec {
                behavior: Option<HorizontalPodAutoscalerBehavior>, max_replicas "maxReplicas": i32,
                metrics: Option<Vec<MetricSpec>>, min_replicas "minReplicas": Option<i32>,
                scale_target_ref "scaleTargetRef": CrossVersionObjectReference,
            }
            HorizontalPodAutoscalerStatus {
                conditions: Option<Vec<HorizontalPodAutoscalerCondition>>,
                current_metrics "currentMetrics": Option<Vec<MetricStatus>>,
                current_replicas "currentReplicas": Option<i32>, desired_replicas "desiredReplicas": i32,
                last_scale_time "lastScaleTime": Option<Time>, observed_generation "observedGeneration": Option<i64>,
            }
            MetricIdentifier { name: String, selector: Option<LabelSelector> }
            MetricSpec {
                container_resource "containerResource": Option<ContainerResourceMetricSource>,
                external: Option<ExternalMetricSource>, object: Option<ObjectMetricSource>,
                pods: Option<PodsMetricSource>, resource: Option<ResourceMetricSource>, type_ "type": String,
            }
            MetricStatus {
                container_resource "containerResource": Option<ContainerResourceMetricStatus>,
                external: Option<ExternalMetricStatus>, object: Option<ObjectMetricStatus>,
                pods: Option<PodsMetricStatus>, resource: Option<ResourceMetricStatus>, type_ "type": String,
            }
            MetricTarget {
                average_utilization "averageUtilization": Option<i32>, average_value "averageValue": Option<Quantity>,
                type_ "type": String, value: Option<Quantity>,
            }
            MetricValueStatus {
                average_utilization "averageUtilization": Option<i32>, average_value "averageValue": Option<Quantity>,
                value: Option<Quantity>,
            }
            ObjectMetricSource {
                described_object "describedObject": CrossVersionObjectReference, metric: MetricIdentifier,
                target: MetricTarget,
            }
            ObjectMetricStatus {
                current: MetricValueStatus, described_object "describedObject": CrossVersionObjectReference,
                metric: MetricIdentifier,
            }
            PodsMetricSource { metric: MetricIdentifier, target: MetricTarget }
            PodsMetricStatus { current: MetricValueStatus, metric: MetricIdentifier }
            ResourceMetricSource { name: String, target: MetricTarget }
            ResourceMetricStatus { current: MetricValueStatus, name: String }
        }
    }
}

/// Types of `batch`.
pub mod batch {
    /// Types of `batch/v1`.
    pub mod v1 {
        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
        use serde_json::Value;

        types! {
            CronJob is NamespaceResourceScope "batch/v1" "batch" "v1" "cronjobs" {
                metadata: ObjectMeta, spec: CronJobSpec, status: Option<CronJobStatus>,
            }
            CronJobSpec {
                concurrency_policy "concurrencyPolicy": Option<String>,
                failed_jobs_history_limit "failedJobsHistoryLimit": Option<i32>,
                job_template "jobTemplate": JobTemplateSpec, schedule: String,
                starting_deadline_seconds "startingDeadlineSeconds": Option<i64>,
                successful_jobs_history_limit "successfulJobsHistoryLimit": Option<i32>, suspend: Option<bool>,
                time_zone "timeZone": Option<String>,
            }
            CronJobStatus {
                active: Option<Vec<crate::api::core::v1::ObjectReference>>,
                last_schedule_time "lastScheduleTime": Option<Time>,
                last_successful_time "lastSuccessfulTime": Option<Time>,
            }
            Job is NamespaceResourceScope "batch/v1" "batch" "v1" "jobs" {
                metadata: ObjectMeta, spec: Option<JobSpec>, status: Option<JobStatus>,
            }
            JobCondition {
                last_probe_time "lastProbeTime": Option<Time>,
                last_transition_time "lastTransitionTime": Option<Time>, message: Option<String>,
                reason: Option<String>, status: String, type_ "type": String,
            }
            JobSpec {
                active_deadline_seconds "activeDeadlineSeconds": Option<i64>,
                backoff_limit "backoffLimit": Option<i32>,
                backoff_limit_per_index "backoffLimitPerIndex": Option<i32>,
                completion_mode "completionMode": Option<String>, completions: Option<i32>,
                managed_by "managedBy": Option<String>, manual_selector "manualSelector": Option<bool>,
                max_failed_indexes "maxFailedIndexes": Option<i32>, parallelism: Option<i32>,
                pod_failure_policy "podFailurePolicy": Option<PodFailurePolicy>,
                pod_replacement_policy "podReplacementPolicy": Option<String>, scheduling: Option<Value>,
                selector: Option<LabelSelector>, success_policy "successPolicy": Option<SuccessPolicy>,
                suspend: Option<bool>, template: crate::api::core::v1::PodTemplateSpec,
                ttl_seconds_after_finished "ttlSecondsAfterFinished": Option<i32>,
            }
            JobStatus {
                active: Option<i32>, completed_indexes "completedIndexes": Option<String>,
                completion_time "completionTime": Option<Time>, conditions: Option<Vec<JobCondition>>,
                failed: Option<i32>, failed_indexes "failedIndexes": Option<String>, ready: Option<i32>,
                start_time "startTime": Option<Time>, succeeded: Option<i32>, terminating: Option<i32>,
                uncounted_terminated_pods "uncountedTerminatedPods": Option<UncountedTerminatedPods>,
            }
            JobTemplateSpec { metadata: Option<ObjectMeta>, spec: Option<JobSpec> }
            PodFailurePolicy { rules: Vec<PodFailurePolicyRule> }
            PodFailurePolicyOnExitCodesRequirement {
                container_name "containerName": Option<String>, operator: String, values: Vec<i32>,
            }
            PodFailurePolicyOnPodConditionsPattern { status: Option<String>, type_ "type": String }
            PodFailurePolicyRule {
                action: String, on_exit_codes "onExitCodes": Option<PodFailurePolicyOnExitCodesRequirement>,
                on_pod_conditions "onPodConditions": Option<Vec<PodFailurePolicyOnPodConditionsPattern>>,
            }
            SuccessPolicy { rules: Vec<SuccessPolicyRule> }
            SuccessPolicyRule {
                succeeded_count "succeededCount": Option<i32>, succeeded_indexes "succeededIndexes": Option<String>,
            }
            UncountedTerminatedPods { failed: Option<Vec<String>>, succeeded: Option<Vec<String>> }
        }
    }
}

/// Types of `policy`.
pub mod policy {
    /// Types of `policy/v1`.
    pub mod v1 {
        use std::collections::BTreeMap;

        use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta, Time};
        use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

        types! {
            PodDisruptionBudget is NamespaceResourceScope "policy/v1" "policy" "v1" "poddisruptionbudgets" {
                metadata: ObjectMeta, spec: Option<PodDisruptionBudgetSpec>,
                status: Option<PodDisruptionBudgetStatus>,
            }
            PodDisruptionBudgetSpec {
                max_unavailable "maxUnavailable": Option<IntOrString>,
                min_available "minAvailable": Option<IntOrString>, selector: Option<LabelSelector>,
                unhealthy_pod_eviction_policy "unhealthyPodEvictionPolicy": Option<String>,
            }
            PodDisruptionBudgetStatus {
                conditions: Option<Vec<Condition>>, current_healthy "currentHealthy": Option<i32>,
                desired_healthy "desiredHealthy": Option<i32>,
                disrupted_pods "disruptedPods": Option<BTreeMap<String, Time>>,
                disruptions_allowed "disruptionsAllowed": Option<i32>, expected_pods "expectedPods": Option<i32>,
                observed_generation "observedGeneration": Option<i64>,
            }
        }
    }
}
