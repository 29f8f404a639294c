//! The kinds the command knows.

use kube::CustomResourceExt as _;
use kube::core::ApiResource;
use weir_api::{extensions, helm, image, kustomize, notification, source};

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    OciRepository,
    Bucket,
    GitRepository,
    HelmRepository,
    HelmChart,
    ExternalArtifact,
    ImageRepository,
    ImagePolicy,
    ImageUpdateAutomation,
    HelmRelease,
    Kustomization,
    Receiver,
    Provider,
    Alert,
    ArtifactGenerator,
}

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Self; 15] = [
        Self::OciRepository,
        Self::Bucket,
        Self::GitRepository,
        Self::HelmRepository,
        Self::HelmChart,
        Self::ExternalArtifact,
        Self::ImageRepository,
        Self::ImagePolicy,
        Self::ImageUpdateAutomation,
        Self::HelmRelease,
        Self::Kustomization,
        Self::Receiver,
        Self::Provider,
        Self::Alert,
        Self::ArtifactGenerator,
    ];

    /// The kind with this name; case does not matter.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// The kind a user means: its name, plural or a short name.
    pub(crate) fn meant(text: &str) -> Option<Self> {
        Self::named(text).or_else(|| {
            let text = text.to_lowercase();
            Self::ALL
                .into_iter()
                .find(|kind| kind.resource().plural == text || kind.short_names().contains(&text.as_str()))
        })
    }

    fn short_names(self) -> &'static [&'static str] {
        match self {
            Self::OciRepository => source::OCIRepository::shortnames(),
            Self::Bucket => source::Bucket::shortnames(),
            Self::GitRepository => source::GitRepository::shortnames(),
            Self::HelmRepository => source::HelmRepository::shortnames(),
            Self::HelmChart => source::HelmChart::shortnames(),
            Self::ExternalArtifact => source::ExternalArtifact::shortnames(),
            Self::ImageRepository => image::ImageRepository::shortnames(),
            Self::ImagePolicy => image::ImagePolicy::shortnames(),
            Self::ImageUpdateAutomation => image::ImageUpdateAutomation::shortnames(),
            Self::HelmRelease => helm::HelmRelease::shortnames(),
            Self::Kustomization => kustomize::Kustomization::shortnames(),
            Self::Receiver => notification::Receiver::shortnames(),
            Self::Provider => notification::Provider::shortnames(),
            Self::Alert => notification::Alert::shortnames(),
            Self::ArtifactGenerator => extensions::ArtifactGenerator::shortnames(),
        }
    }

    /// The name of the kind in the API.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OciRepository => "OCIRepository",
            Self::Bucket => "Bucket",
            Self::GitRepository => "GitRepository",
            Self::HelmRepository => "HelmRepository",
            Self::HelmChart => "HelmChart",
            Self::ExternalArtifact => "ExternalArtifact",
            Self::ImageRepository => "ImageRepository",
            Self::ImagePolicy => "ImagePolicy",
            Self::ImageUpdateAutomation => "ImageUpdateAutomation",
            Self::HelmRelease => "HelmRelease",
            Self::Kustomization => "Kustomization",
            Self::Receiver => "Receiver",
            Self::Provider => "Provider",
            Self::Alert => "Alert",
            Self::ArtifactGenerator => "ArtifactGenerator",
        }
    }

    /// The name of the kind in sentences.
    pub(crate) const fn human(self) -> &'static str {
        match self {
            Self::OciRepository => "source oci",
            Self::Bucket => "source bucket",
            Self::GitRepository => "source git",
            Self::HelmRepository => "source helm",
            Self::HelmChart => "source chart",
            Self::ExternalArtifact => "source external",
            Self::ImageRepository => "image repository",
            Self::ImagePolicy => "image policy",
            Self::ImageUpdateAutomation => "image update",
            Self::HelmRelease => "helmrelease",
            Self::Kustomization => "kustomization",
            Self::Receiver => "receiver",
            Self::Provider => "alert provider",
            Self::Alert => "alert",
            Self::ArtifactGenerator => "artifact generator",
        }
    }

    /// Where the API server keeps objects of the kind.
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::OciRepository => source::OCIRepository::api_resource(),
            Self::Bucket => source::Bucket::api_resource(),
            Self::GitRepository => source::GitRepository::api_resource(),
            Self::HelmRepository => source::HelmRepository::api_resource(),
            Self::HelmChart => source::HelmChart::api_resource(),
            Self::ExternalArtifact => source::ExternalArtifact::api_resource(),
            Self::ImageRepository => image::ImageRepository::api_resource(),
            Self::ImagePolicy => image::ImagePolicy::api_resource(),
            Self::ImageUpdateAutomation => image::ImageUpdateAutomation::api_resource(),
            Self::HelmRelease => helm::HelmRelease::api_resource(),
            Self::Kustomization => kustomize::Kustomization::api_resource(),
            Self::Receiver => notification::Receiver::api_resource(),
            Self::Provider => notification::Provider::api_resource(),
            Self::Alert => notification::Alert::api_resource(),
            Self::ArtifactGenerator => extensions::ArtifactGenerator::api_resource(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_resources_agree() {
        for kind in Kind::ALL {
            assert_eq!(kind.resource().kind, kind.name());
            assert_eq!(Kind::named(&kind.name().to_lowercase()), Some(kind));
        }
        assert_eq!(Kind::named("Deployment"), None);
        assert_eq!(Kind::meant("ks"), Some(Kind::Kustomization));
        assert_eq!(Kind::meant("GitRepositories"), Some(Kind::GitRepository));
        assert_eq!(Kind::meant("pods"), None);
    }
}
