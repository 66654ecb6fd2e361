package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The types of cert-manager and kustomize, as far as the manifests use them.
type (
	certificate struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			SecretName  string   `json:"secretName"`
			CommonName  string   `json:"commonName"`
			IsCA        bool     `json:"isCA"`
			Duration    string   `json:"duration"`
			RenewBefore string   `json:"renewBefore"`
			DNSNames    []string `json:"dnsNames"`
			URIs        []string `json:"uris"`
			Usages      []string `json:"usages"`
			PrivateKey  struct {
				Algorithm      string `json:"algorithm"`
				Size           int    `json:"size"`
				RotationPolicy string `json:"rotationPolicy"`
			} `json:"privateKey"`
			IssuerRef struct {
				Name string `json:"name"`
				Kind string `json:"kind"`
			} `json:"issuerRef"`
		} `json:"spec"`
	}
	issuer struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			SelfSigned *struct{} `json:"selfSigned"`
			CA         *struct {
				SecretName string `json:"secretName"`
			} `json:"ca"`
		} `json:"spec"`
	}
	kustomization struct {
		metav1.TypeMeta `json:",inline"`
		Namespace       string   `json:"namespace"`
		Resources       []string `json:"resources"`
		Images          []struct {
			Name   string `json:"name"`
			NewTag string `json:"newTag"`
		} `json:"images"`
	}
)

// manifests are the decoded files.
type manifests struct {
	kustomization kustomization
	namespace     corev1.Namespace
	services      map[string]corev1.Service
	set           appsv1.StatefulSet
	disruption    policyv1.PodDisruptionBudget
	network       networkingv1.NetworkPolicy
	certificates  map[string]certificate // by the names of their secrets
	issuers       map[string]issuer
}

// decode decodes all manifests strictly: an unknown or repeated field is an error.
func decode(t *testing.T) *manifests {
	t.Helper()
	m := &manifests{services: map[string]corev1.Service{}, certificates: map[string]certificate{}, issuers: map[string]issuer{}}
	names, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			if err := m.add(document); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	return m
}

func (m *manifests) add(document []byte) (err error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	// Field names are compared as the API server does, which encoding/json does not: upper and lower case count.
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	strict := func(into any) {
		faults, broken := json.UnmarshalStrict(text, into)
		err = errors.Join(append(faults, broken)...)
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "kustomize.config.k8s.io/v1beta1 Kustomization":
		strict(&m.kustomization)
	case "v1 Namespace":
		strict(&m.namespace)
	case "v1 Service":
		var s corev1.Service
		strict(&s)
		m.services[s.Name] = s
	case "apps/v1 StatefulSet":
		strict(&m.set)
	case "policy/v1 PodDisruptionBudget":
		strict(&m.disruption)
	case "networking.k8s.io/v1 NetworkPolicy":
		strict(&m.network)
	case "cert-manager.io/v1 Certificate":
		var c certificate
		strict(&c)
		m.certificates[c.Spec.SecretName] = c
	case "cert-manager.io/v1 Issuer":
		var i issuer
		strict(&i)
		m.issuers[i.Name] = i
	default:
		return fmt.Errorf("%s %s is unknown: add its type to this test", kind.APIVersion, kind.Kind)
	}
	return err
}

// TestUnknownFieldsAreRefused verifies that the manifests are decoded strictly.
func TestUnknownFieldsAreRefused(t *testing.T) {
	for _, text := range []string{
		"apiVersion: v1\nkind: Service\nspec:\n  publishNotReady: true\n",
		"apiVersion: v1\nkind: Service\nspec:\n  clusterIp: None\n",
		"apiVersion: v1\nkind: Service\nspec:\n  clusterIP: a\n  clusterIP: b\n",
		"apiVersion: cert-manager.io/v1\nkind: Certificate\nspec:\n  secret: a\n",
		"apiVersion: v1\nkind: Pod\n",
	} {
		m := &manifests{services: map[string]corev1.Service{}, certificates: map[string]certificate{}}
		if m.add([]byte(text)) == nil {
			t.Errorf("it was accepted:\n%s", text)
		}
	}
}

// TestManifestsFitTogether verifies that what one manifest names is what another one defines.
func TestManifestsFitTogether(t *testing.T) {
	m := decode(t)
	pods := m.set.Spec.Template.Labels
	nodes, ok := m.services[m.set.Spec.ServiceName]
	if !ok || nodes.Spec.ClusterIP != corev1.ClusterIPNone || !nodes.Spec.PublishNotReadyAddresses {
		t.Errorf("the service %q is not headless, or hides nodes that are not ready", m.set.Spec.ServiceName)
	}
	selectors := map[string]map[string]string{"StatefulSet": m.set.Spec.Selector.MatchLabels,
		"PodDisruptionBudget": m.disruption.Spec.Selector.MatchLabels, "NetworkPolicy": m.network.Spec.PodSelector.MatchLabels}
	ports := map[string]bool{}
	for _, port := range m.set.Spec.Template.Spec.Containers[0].Ports {
		ports[port.Name] = true
	}
	for name, service := range m.services {
		selectors["Service "+name] = service.Spec.Selector
		for _, port := range service.Spec.Ports {
			if !ports[port.TargetPort.StrVal] {
				t.Errorf("service %s: the container has no port %s", name, port.TargetPort.StrVal)
			}
		}
	}
	for name, c := range m.certificates {
		if i, ok := m.issuers[c.Spec.IssuerRef.Name]; !ok || i.Spec.SelfSigned == nil != (name != "quorumlock-ca") {
			t.Errorf("certificate %s: no such issuer, or the wrong one: %q", name, c.Spec.IssuerRef.Name)
		}
	}
	for name, selector := range selectors {
		if len(selector) == 0 || !maps.Equal(selector, pods) {
			t.Errorf("%s selects %v, the pods have %v", name, selector, pods)
		}
	}
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if name := filepath.Base(path); name != "kustomization.yaml" && !slices.Contains(m.kustomization.Resources, name) {
			t.Errorf("the kustomization lacks %s", name)
		}
	}
	if len(m.kustomization.Resources) != len(files)-1 || m.kustomization.Images[0].Name != m.set.Spec.Template.Spec.Containers[0].Image {
		t.Errorf("the kustomization has %v, images %v", m.kustomization.Resources, m.kustomization.Images)
	}
}

// TestPodsAreRestricted verifies what keeps nodes apart, in a majority, and without rights.
func TestPodsAreRestricted(t *testing.T) {
	m := decode(t)
	pod := m.set.Spec.Template.Spec
	c := pod.Containers[0]
	if m.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
		t.Error("the pods do not start in parallel, so the first one waits for a leader for ever")
	}
	if m.disruption.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%v pods may be unavailable", m.disruption.Spec.MaxUnavailable)
	}
	if affinity := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution; len(affinity) != 1 || affinity[0].TopologyKey != corev1.LabelHostname {
		t.Errorf("anti-affinity %v", affinity)
	}
	if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser != 65532 || *s.FSGroup != 65532 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context of the pod: %v", s)
	}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("security context of the container: %v", s)
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "health" {
			t.Errorf("the probe of %s: %v", path, probe)
		}
	}
	if !strings.HasPrefix(c.VolumeMounts[0].MountPath, stateDir) || m.set.Spec.VolumeClaimTemplates[0].Name != c.VolumeMounts[0].Name {
		t.Errorf("the data are in %v", c.VolumeMounts)
	}
}
