{{ define "echo" }}<{{ . }}>{{ end }}
{{ define "fails" }}{{ fail "on purpose" }}{{ end }}
{{ define "deep" }}{{ .a.b.c }}{{ end }}
{{ define "outer" }}{{ include "deep" . }}{{ end }}
{{ define "loop" }}{{ include "loop" . }}{{ end }}
{{ define "pair" }}{{ $x := . }}{{ $x }}-{{ template "echo" $x }}{{ end }}