{{/* Name of the chart, for labels. */}}
{{- define "ringfleet.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Prefix of the names of objects. */}}
{{- define "ringfleet.fullname" -}}
{{- $name := include "ringfleet.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Name of the manager's Deployment, and of what belongs to it. */}}
{{- define "ringfleet.manager" -}}
{{ include "ringfleet.fullname" . }}-manager
{{- end }}

{{- define "ringfleet.serviceAccountName" -}}
{{ default (include "ringfleet.manager" .) .Values.serviceAccount.name }}
{{- end }}

{{/*
Name of the ClusterRole that the manager binds for routers. It is not prefixed: the manager may bind this one
name and no other.
*/}}
{{- define "ringfleet.routerClusterRole" -}}
ringfleet-router
{{- end }}

{{- define "ringfleet.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ringfleet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: manager
{{- end }}

{{/* Labels of every object but the pods' selectors. */}}
{{- define "ringfleet.labels" -}}
app.kubernetes.io/name: {{ include "ringfleet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Full name of an image: (list $ .Values.manager.image). */}}
{{- define "ringfleet.image" -}}
{{- $root := index . 0 }}{{- $image := index . 1 -}}
{{ $image.repository }}:{{ default $root.Chart.AppVersion $image.tag }}
{{- end }}
