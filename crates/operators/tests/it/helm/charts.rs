//! The charts of the tests.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Files of a chart, and what stands in them.
pub(super) type Files = &'static [(&'static str, &'static str)];

/// A Deployment, a Service, a Secret, and a ClusterRole if it is asked for.
pub(super) const WEB: Files = &[
    ("Chart.yaml", "apiVersion: v2\nname: web\nversion: 0.1.0\n"),
    (
        "values.yaml",
        "replicas: 1\nimage: {name: nginx, tag: \"1\"}\nport: 80\npassword: none\nclusterRole: false\nkept: false\n",
    ),
    (
        "templates/web.yaml",
        r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
      - name: web
        image: "{{ .Values.image.name }}:{{ .Values.image.tag }}"
        ports: [{containerPort: {{ .Values.port }}}]
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}
spec:
  selector: {app: {{ .Release.Name }}}
  ports: [{port: {{ .Values.port }}}]
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ .Release.Name }}
stringData:
  password: {{ .Values.password | quote }}
{{- if .Values.clusterRole }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .Release.Namespace }}-{{ .Release.Name }}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
{{- end }}
{{- if .Values.kept }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-kept
  annotations: {helm.sh/resource-policy: keep}
data: {a: b}
{{- end }}
"#,
    ),
    ("templates/NOTES.txt", "{{ .Release.Name }} is there.\n"),
];

/// A ConfigMap, and a hook that leaves a Job behind.
pub(super) const HOOKED: Files = &[
    ("Chart.yaml", "apiVersion: v2\nname: hooked\nversion: 0.1.0\n"),
    ("values.yaml", "text: a\n"),
    (
        "templates/all.yaml",
        r#"apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {text: {{ .Values.text | quote }}}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: "post-install,post-upgrade"}
data: {text: hook}
"#,
    ),
];

/// A chart whose spec has a schema, and that does not render for the text `broken`.
pub(super) const STRICT: Files = &[
    ("Chart.yaml", "apiVersion: v2\nname: strict\nversion: 0.1.0\n"),
    ("values.yaml", "text: a\ncount: 1\n"),
    (
        "values.schema.json",
        r#"{"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}, "text": {"type": "string"}}}"#,
    ),
    (
        "templates/all.yaml",
        r#"{{- if eq .Values.text "broken" }}{{ fail "it is broken" }}{{ end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {text: {{ .Values.text | quote }}}
"#,
    ),
];

/// A ConfigMap, and a hook that is refused for the text `broken`.
pub(super) const FAILING: Files = &[
    ("Chart.yaml", "apiVersion: v2\nname: failing\nversion: 0.1.0\n"),
    ("values.yaml", "text: a\n"),
    (
        "templates/all.yaml",
        r#"apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {text: {{ .Values.text | quote }}}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ if eq .Values.text "broken" }}IT-CANNOT-BE{{ else }}{{ .Release.Name }}-hook{{ end }}
  annotations: {helm.sh/hook: "post-install,post-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
data: {text: hook}
"#,
    ),
];

/// A folder with a chart in it.
pub(super) fn write(files: Files) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write_into(folder.path(), files);
    folder
}

fn write_into(folder: &Path, files: Files) {
    for (path, text) in files {
        let path: PathBuf = folder.join(path);
        fs::create_dir_all(path.parent().expect("it is below a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
}
