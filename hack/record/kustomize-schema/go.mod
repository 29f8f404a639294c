module weir/hack/record/kustomize-schema

go 1.24.0

require (
	github.com/google/gnostic-models v0.7.0
	google.golang.org/protobuf v1.36.5
	sigs.k8s.io/kustomize/kyaml v0.21.1
)

require go.yaml.in/yaml/v3 v3.0.3 // indirect
