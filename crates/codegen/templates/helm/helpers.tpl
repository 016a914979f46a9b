{{- /* The name before every object; short enough for the longest of them. */ -}}
{{- define "PROJECT.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 30 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The account that the operator is. */ -}}
{{- define "PROJECT.serviceAccountName" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.enabled -}}
{{- include "PROJECT.fullname" . }}-controller-manager
{{- else -}}
default
{{- end -}}
{{- end -}}

{{- /* The operator's image; a digest is exact, whatever the tag. */ -}}
{{- define "PROJECT.image" -}}
{{- with .Values.manager.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- $tag := default $.Chart.AppVersion .tag -}}
{{- printf "%s:%s" .repository $tag -}}
{{- end -}}
{{- end -}}
{{- end -}}
