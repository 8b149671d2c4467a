package desired

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
)

// WeightsVolume is the name of the volume that holds the weights.
const WeightsVolume = "weights"

// The schemes of a weights URI.
const (
	schemeOCI = "oci://"
	schemePVC = "pvc://"
)

// WeightsImage is the reference of the image that w is, with weights.digest in place of a tag; "" when w is no image.
func WeightsImage(w v1alpha1.Weights) string {
	ref, ok := strings.CutPrefix(w.URI, schemeOCI)
	if !ok {
		return ""
	}
	if w.Digest == "" {
		return ref
	}
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		ref = ref[:i]
	}
	return ref + "@" + w.Digest
}

// WeightsClaim is the name of the PersistentVolumeClaim that holds w and the folder in it; "" when w is in none.
func WeightsClaim(w v1alpha1.Weights) (claim, folder string) {
	path, ok := strings.CutPrefix(w.URI, schemePVC)
	if !ok {
		return "", ""
	}
	claim, folder, _ = strings.Cut(path, "/")
	return claim, folder
}

// Fetched reports whether workers fetch w themselves, rather than the kubelet mounting it.
func Fetched(w v1alpha1.Weights) bool {
	return !strings.HasPrefix(w.URI, schemeOCI) && !strings.HasPrefix(w.URI, schemePVC)
}

// The volumes of fetched weights.
const (
	cacheVolume   = "weight-cache"
	fetchedVolume = "model"
)

// weightsVolumes are the volumes that weights and adapters are on. The kubelet pulls an image once for all workers of a node.
func weightsVolumes(m *v1alpha1.InferenceModel, pool *v1alpha1.WorkerPool) []corev1.Volume {
	var volumes []corev1.Volume
	if w := m.Spec.Weights; !Fetched(w) {
		v := corev1.Volume{Name: WeightsVolume}
		if claim, _ := WeightsClaim(w); claim != "" {
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true}
		} else {
			v.Image = &corev1.ImageVolumeSource{Reference: WeightsImage(w), PullPolicy: corev1.PullIfNotPresent}
		}
		volumes = append(volumes, v)
	}
	if !fetches(m) {
		return volumes
	}
	cache := corev1.Volume{Name: cacheVolume}
	if c := pool.Spec.WeightCache; c.Kind == v1alpha1.WeightCacheClaim {
		cache.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.ClaimName}
	} else {
		cache.EmptyDir = &corev1.EmptyDirVolumeSource{}
		if c.SizeGibibytes != nil && *c.SizeGibibytes > 0 {
			// What is fetched is bounded by the worker; the kubelet's bound has room for what it needs besides.
			cache.EmptyDir.SizeLimit = resource.NewQuantity(int64(*c.SizeGibibytes)<<30+1<<30, resource.BinarySI)
		}
	}
	volumes = append(volumes, cache)
	if beside(m) {
		volumes = append(volumes, corev1.Volume{Name: fetchedVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)}}})
	}
	return volumes
}

// weightsMounts are where a container of m finds weights and adapters. Only what fetches writes to the cache, and the worker,
// which tells the cache that they are in use.
func weightsMounts(m *v1alpha1.InferenceModel, writes bool) []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	if !Fetched(m.Spec.Weights) {
		_, folder := WeightsClaim(m.Spec.Weights)
		mounts = append(mounts, corev1.VolumeMount{Name: WeightsVolume, MountPath: v1alpha1.WeightsDir, SubPath: folder, ReadOnly: true})
	}
	if !fetches(m) {
		return mounts
	}
	mounts = append(mounts, corev1.VolumeMount{Name: cacheVolume, MountPath: v1alpha1.WeightCacheDir, ReadOnly: !writes})
	if beside(m) {
		mounts = append(mounts, corev1.VolumeMount{Name: fetchedVolume, MountPath: v1alpha1.FetchedDir, ReadOnly: !writes})
	}
	return mounts
}

// weightsArgs tell a worker where its weights and adapters are.
func weightsArgs(m *v1alpha1.InferenceModel, pool *v1alpha1.WorkerPool) []string {
	w := m.Spec.Weights
	a := []string{"--weights-dir=" + v1alpha1.WeightsDir}
	if w.File != "" {
		a = append(a, "--weights-file="+w.File)
	}
	if w.Digest != "" && !strings.HasPrefix(w.URI, schemeOCI) {
		a = append(a, "--weights-digest="+w.Digest)
	}
	if Fetched(w) {
		a = append(a, "--weights-uri="+literal(w.URI))
	}
	if fetches(m) {
		a = append(a, cacheArgs(pool.Spec.WeightCache)...)
	}
	if Fetched(w) && beside(m) {
		a = append(a, "--weights-link="+v1alpha1.FetchedWeights)
	}
	return append(a, adapterArgs(m)...)
}

// cacheArgs tell a worker where it may fetch from, and where to.
func cacheArgs(c v1alpha1.WeightCache) []string {
	a := []string{"--weights-cache-dir=" + v1alpha1.WeightCacheDir}
	if c.SizeGibibytes != nil {
		a = append(a, "--weights-cache-gibibytes="+strconv.Itoa(int(*c.SizeGibibytes)))
	}
	if len(c.AllowNetworks) > 0 {
		a = append(a, "--weights-allow-networks="+strings.Join(c.AllowNetworks, ","))
	}
	return a
}

// literal is text as an argument that the kubelet hands on as it is: it would replace $(NAME) by that variable, and a URI
// with HF_TOKEN in it would send the token to whoever the URI names.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// credentials are the variables that what fetches takes from the model's Secret.
func credentials(m *v1alpha1.InferenceModel) []corev1.EnvFromSource {
	name := m.Spec.Weights.SecretRef.Name
	if !fetches(m) || name == "" {
		return nil
	}
	return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}
}
