{{/* Labels of every object. Names, labels and selectors are those of Flux: tools and patches rely on them. */}}
{{- define "weir.labels" -}}
app.kubernetes.io/part-of: flux
app.kubernetes.io/instance: {{ .Release.Namespace }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
control-plane: controller
{{- end }}

{{/* Where controllers post their events: what the values say, or the notification-controller of this release. */}}
{{- define "weir.eventsAddr" -}}
{{- if .Values.eventsAddr }}
{{- .Values.eventsAddr }}
{{- else if .Values.notificationController.create }}
{{- printf "http://notification-controller.%s.svc.%s./" .Release.Namespace .Values.clusterDomain }}
{{- end }}
{{- end }}

{{/* A controller: dict "root" $ "name" string "values" map "source" bool "notification" bool */}}
{{- define "weir.controller" -}}
{{- $root := .root }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "weir.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
  {{- with .values.serviceAccountAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "weir.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
    {{- with .values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  replicas: 1
  selector:
    matchLabels:
      app: {{ .name }}
  {{- if .source }}
  strategy:
    type: Recreate
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "weir.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
        app: {{ .name }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "8080"
    spec:
      serviceAccountName: {{ .name }}
      priorityClassName: system-cluster-critical
      terminationGracePeriodSeconds: {{ ternary 10 60 (or .source (default false .notification)) }}
      securityContext:
        fsGroup: 1337
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      nodeSelector:
        kubernetes.io/os: linux
        {{- with .values.nodeSelector }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: manager
          image: {{ required "image.registry is empty: set it to the registry and repository prefix of the images" $root.Values.image.registry }}/{{ .name }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- if not .notification }}
            - --events-addr={{ include "weir.eventsAddr" $root }}
            {{- end }}
            - --watch-all-namespaces={{ $root.Values.watchAllNamespaces }}
            - --log-level={{ $root.Values.logLevel }}
            - --log-encoding=json
            - --enable-leader-election
            {{- if .source }}
            - --storage-path=/data
            - --storage-adv-addr={{ .name }}.$(RUNTIME_NAMESPACE).svc.{{ $root.Values.clusterDomain }}.
            {{- end }}
            {{- with .values.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            - name: RUNTIME_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            {{- with .values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- if or .source .notification }}
            - name: http
              containerPort: 9090
              protocol: TCP
            {{- end }}
            {{- if .notification }}
            - name: http-webhook
              containerPort: 9292
              protocol: TCP
            {{- end }}
            - name: http-prom
              containerPort: 8080
              protocol: TCP
            - name: healthz
              containerPort: 9440
              protocol: TCP
          livenessProbe:
            httpGet:
              path: /healthz
              port: healthz
          readinessProbe:
            httpGet:
              path: {{ ternary "/" "/readyz" .source }}
              port: {{ ternary "http" "healthz" .source }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            runAsNonRoot: true
            capabilities:
              drop: [ALL]
            seccompProfile:
              type: RuntimeDefault
          volumeMounts:
            {{- if .source }}
            - name: data
              mountPath: /data
            {{- end }}
            - name: {{ ternary "tmp" "temp" .source }}
              mountPath: /tmp
      volumes:
        {{- if .source }}
        - name: data
          {{- toYaml .values.dataVolume | nindent 10 }}
        {{- end }}
        - name: {{ ternary "tmp" "temp" .source }}
          emptyDir: {}
{{- end }}
