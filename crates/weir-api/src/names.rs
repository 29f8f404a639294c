//! Names that are part of the interface: condition types, reasons, annotations, labels, finalizers, controllers.

/// Types of conditions.
pub mod condition {
    /// The last attempted generation is fully reconciled.
    pub const READY: &str = "Ready";
    /// Work is going on; only present while true.
    pub const RECONCILING: &str = "Reconciling";
    /// No retry will help; only present while true.
    pub const STALLED: &str = "Stalled";
    /// Result of the latest health checks.
    pub const HEALTHY: &str = "Healthy";
    /// A reference was refused.
    pub const ACCESS_DENIED: &str = "AccessDenied";
    /// The artifact of a source is stored.
    pub const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
    /// A newer artifact was found.
    pub const ARTIFACT_OUTDATED: &str = "ArtifactOutdated";
    /// Fetching from a source failed.
    pub const FETCH_FAILED: &str = "FetchFailed";
    /// Building the artifact failed.
    pub const BUILD_FAILED: &str = "BuildFailed";
    /// Writing to the artifact store failed.
    pub const STORAGE_OPERATION_FAILED: &str = "StorageOperationFailed";
    /// The signature of a source is verified.
    pub const SOURCE_VERIFIED: &str = "SourceVerified";
    /// A GitRepository that is included is not available.
    pub const INCLUDE_UNAVAILABLE: &str = "IncludeUnavailable";
    /// The release is installed or upgraded.
    pub const RELEASED: &str = "Released";
    /// The chart tests succeeded.
    pub const TEST_SUCCESS: &str = "TestSuccess";
    /// A failed release was rolled back or uninstalled.
    pub const REMEDIATED: &str = "Remediated";
}

/// Reasons that several kinds share.
pub mod reason {
    /// It worked.
    pub const SUCCEEDED: &str = "Succeeded";
    /// It did not work.
    pub const FAILED: &str = "Failed";
    /// Work is going on.
    pub const PROGRESSING: &str = "Progressing";
    /// Work goes on after a failure.
    pub const PROGRESSING_WITH_RETRY: &str = "ProgressingWithRetry";
    /// The object is suspended.
    pub const SUSPENDED: &str = "Suspended";
    /// An object this one depends on is not ready.
    pub const DEPENDENCY_NOT_READY: &str = "DependencyNotReady";
    /// A path does not exist or leaves its root.
    pub const INVALID_PATH: &str = "InvalidPath";
    /// An address is malformed.
    pub const INVALID_URL: &str = "InvalidURL";
    /// Plain HTTP is not allowed.
    pub const INSECURE_CONNECTIONS_DISALLOWED: &str = "InsecureConnectionsDisallowed";
    /// The kind of connection is not supported.
    pub const UNSUPPORTED_CONNECTION_TYPE: &str = "UnsupportedConnectionType";
    /// Deleting objects failed.
    pub const PRUNE_FAILED: &str = "PruneFailed";
    /// Fetching the artifact failed.
    pub const ARTIFACT_FAILED: &str = "ArtifactFailed";
    /// Building the manifests failed.
    pub const BUILD_FAILED: &str = "BuildFailed";
    /// An object did not become healthy.
    pub const HEALTH_CHECK_FAILED: &str = "HealthCheckFailed";
    /// The health checks ended early because something newer came.
    pub const HEALTH_CHECK_CANCELED: &str = "HealthCheckCanceled";
    /// The reconciliation succeeded.
    pub const RECONCILIATION_SUCCEEDED: &str = "ReconciliationSucceeded";
    /// The reconciliation failed.
    pub const RECONCILIATION_FAILED: &str = "ReconciliationFailed";
    /// A CEL expression is malformed.
    pub const INVALID_CEL_EXPRESSION: &str = "InvalidCELExpression";
    /// A feature gate is off.
    pub const FEATURE_GATE_DISABLED: &str = "FeatureGateDisabled";
    /// A reference was refused.
    pub const ACCESS_DENIED: &str = "AccessDenied";
    /// The revision of a source did not change.
    pub const ARTIFACT_UP_TO_DATE: &str = "ArtifactUpToDate";
    /// A new artifact is stored.
    pub const NEW_ARTIFACT: &str = "NewArtifact";
}

/// Annotations.
pub mod annotation {
    /// Asks for a reconciliation; the value is a token without meaning.
    pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
    /// Asks for a forced action, together with an equal [`REQUESTED_AT`].
    pub const FORCE_AT: &str = "reconcile.fluxcd.io/forceAt";
    /// Asks to reset failure counts, together with an equal [`REQUESTED_AT`].
    pub const RESET_AT: &str = "reconcile.fluxcd.io/resetAt";
    /// Asks for one run of a suspended object, together with an equal [`REQUESTED_AT`]. Flux ignores it.
    pub const RECONCILE_ONCE_AT: &str = "weir.dev/reconcileOnceAt";
    /// Prefix of annotations that are copied to events.
    pub const EVENT_PREFIX: &str = "event.toolkit.fluxcd.io/";
    /// Leaves an applied object alone when `disabled`; also a label.
    pub const KUSTOMIZE_RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
    /// How an applied object is applied: `Override`, `Merge`, `IfNotPresent` or `Ignore`; also a label.
    pub const KUSTOMIZE_SSA: &str = "kustomize.toolkit.fluxcd.io/ssa";
    /// Allows that an object is deleted and created again when `enabled`; also a label.
    pub const KUSTOMIZE_FORCE: &str = "kustomize.toolkit.fluxcd.io/force";
    /// Keeps an object from being pruned when `disabled`; also a label.
    pub const KUSTOMIZE_PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";
    /// Keeps variables in an object from being substituted when `disabled`; also a label.
    pub const KUSTOMIZE_SUBSTITUTE: &str = "kustomize.toolkit.fluxcd.io/substitute";
    /// Suspends an ArtifactGenerator when `disabled`.
    pub const EXTENSIONS_RECONCILE: &str = "source.extensions.fluxcd.io/reconcile";
    /// Suspends an operator kind when `disabled`.
    pub const OPERATOR_RECONCILE: &str = "fluxcd.controlplane.io/reconcile";
    /// Interval of an operator kind.
    pub const OPERATOR_RECONCILE_EVERY: &str = "fluxcd.controlplane.io/reconcileEvery";
    /// Timeout of an operator kind.
    pub const OPERATOR_RECONCILE_TIMEOUT: &str = "fluxcd.controlplane.io/reconcileTimeout";
    /// Value that switches something off.
    pub const DISABLED: &str = "disabled";
    /// Value that switches something on.
    pub const ENABLED: &str = "enabled";
}

/// Labels.
pub mod label {
    /// Marks ConfigMaps and Secrets whose change triggers a reconciliation.
    pub const WATCH: &str = "reconcile.fluxcd.io/watch";
    /// Value of [`WATCH`].
    pub const WATCH_ENABLED: &str = "Enabled";
    /// Assigns an object to a shard.
    pub const SHARD_KEY: &str = "sharding.fluxcd.io/key";
    /// Name of the Kustomization an object belongs to.
    pub const KUSTOMIZE_NAME: &str = "kustomize.toolkit.fluxcd.io/name";
    /// Namespace of the Kustomization an object belongs to.
    pub const KUSTOMIZE_NAMESPACE: &str = "kustomize.toolkit.fluxcd.io/namespace";
    /// Name of the HelmRelease an object belongs to.
    pub const HELM_NAME: &str = "helm.toolkit.fluxcd.io/name";
    /// Namespace of the HelmRelease an object belongs to.
    pub const HELM_NAMESPACE: &str = "helm.toolkit.fluxcd.io/namespace";
}

/// Finalizers.
pub mod finalizer {
    /// Finalizer of all toolkit kinds but the ArtifactGenerator.
    pub const FLUX: &str = "finalizers.fluxcd.io";
    /// Finalizer of the ArtifactGenerator.
    pub const EXTENSIONS: &str = "source.extensions.fluxcd.io/finalizer";
}

/// Controllers, as field managers and event sources.
pub mod controller {
    /// Serves sources.
    pub const SOURCE: &str = "source-controller";
    /// Serves Kustomizations.
    pub const KUSTOMIZE: &str = "kustomize-controller";
    /// Serves HelmReleases.
    pub const HELM: &str = "helm-controller";
    /// Serves alerts, providers and receivers.
    pub const NOTIFICATION: &str = "notification-controller";
    /// Serves image repositories and policies.
    pub const IMAGE_REFLECTOR: &str = "image-reflector-controller";
    /// Serves image updates.
    pub const IMAGE_AUTOMATION: &str = "image-automation-controller";
    /// Serves artifact generators.
    pub const SOURCE_WATCHER: &str = "source-watcher";
}

/// Environment variables.
pub mod environment {
    /// Namespace the controller runs in.
    pub const RUNTIME_NAMESPACE: &str = "RUNTIME_NAMESPACE";
    /// Host to use for artifact addresses instead of the advertised one.
    pub const SOURCE_CONTROLLER_LOCALHOST: &str = "SOURCE_CONTROLLER_LOCALHOST";
    /// The same for artifacts of source-watcher.
    pub const SOURCE_WATCHER_LOCALHOST: &str = "SOURCE_WATCHER_LOCALHOST";
}
