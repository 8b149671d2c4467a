package desired

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

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

// weightsVolume is the volume of the weights. The kubelet pulls an image once for all workers of a node.
func weightsVolume(w v1alpha1.Weights) corev1.Volume {
	v := corev1.Volume{Name: WeightsVolume}
	if claim, _ := WeightsClaim(w); claim != "" {
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true}
	} else {
		v.Image = &corev1.ImageVolumeSource{Reference: WeightsImage(w), PullPolicy: corev1.PullIfNotPresent}
	}
	return v
}
