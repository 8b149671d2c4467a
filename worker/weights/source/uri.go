package source

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/ringfleet/ringfleet/worker/weights/egress"
)

// Scheme is how a URI begins.
type Scheme string

// The schemes.
const (
	HF    Scheme = "hf"
	S3    Scheme = "s3"
	HTTPS Scheme = "https"
	OCI   Scheme = "oci"
	PVC   Scheme = "pvc"
	Local Scheme = "file"
)

// maxURI bounds a URI in bytes; signed URLs have some 1,500.
const maxURI = 4096

// URI is where a model's weights are.
type URI struct {
	Scheme Scheme
	// Name is the repository of hf and oci, the bucket of s3, the claim of pvc. Oci's begins with the registry's host.
	Name string
	// Path is the key or prefix of s3, the path of file, the folder of pvc.
	Path string
	// Revision is the branch, tag or commit of hf, the tag of oci.
	Revision string
	// Digest is oci's sha256:….
	Digest string
	// URL is https's.
	URL *url.URL
}

var (
	repository = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	revision   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)
	bucket     = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	claim      = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	image      = regexp.MustCompile(`^([a-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?/[a-z0-9][a-z0-9._/-]*)(?::([A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?$`)
)

// Parse reads a URI: hf://ORG/NAME[@REVISION], s3://BUCKET/KEY, https://HOST/FILE, oci://REGISTRY/REPOSITORY[:TAG][@DIGEST],
// pvc://CLAIM[/FOLDER] or file:///PATH. The error is an *Error with Unusable.
func Parse(s string) (URI, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || len(s) > maxURI {
		return URI{}, refuse(Unusable, "the weights' URI of %d bytes has no scheme, expected hf, s3, https, oci, pvc or file", len(s))
	}
	u := URI{Scheme: Scheme(scheme)}
	switch u.Scheme {
	case HF:
		ok = u.repository(rest)
	case S3:
		ok = u.nameAndPath(rest, bucket)
	case PVC:
		ok = u.nameAndPath(rest, claim)
	case HTTPS:
		return parseWeb(s)
	case OCI:
		ok = u.image(rest)
	case Local:
		u.Path = rest
		_, ok = clean(strings.TrimPrefix(rest, "/"))
		ok = ok && strings.HasPrefix(rest, "/")
	default:
		return URI{}, refuse(Unusable, "the weights' URI has scheme %q, expected hf, s3, https, oci, pvc or file", short(scheme))
	}
	if !ok {
		return URI{}, refuse(Unusable, "the weights' URI %q is not of the form %s", short(s), forms[u.Scheme])
	}
	return u, nil
}

func (u *URI) repository(rest string) (ok bool) {
	if u.Name, u.Revision, ok = strings.Cut(rest, "@"); !ok {
		u.Revision = "main"
	}
	return repository.MatchString(u.Name) && revision.MatchString(u.Revision) && !strings.Contains(u.Revision, "..")
}

func (u *URI) nameAndPath(rest string, name *regexp.Regexp) bool {
	u.Name, u.Path, _ = strings.Cut(rest, "/")
	_, plain := clean(strings.TrimSuffix(u.Path, "/"))
	return name.MatchString(u.Name) && (plain || u.Path == "")
}

func (u *URI) image(rest string) bool {
	m := image.FindStringSubmatch(rest)
	if m == nil {
		return false
	}
	u.Name, u.Revision, u.Digest = m[1], m[2], m[3]
	if u.Revision == "" && u.Digest == "" {
		u.Revision = "latest"
	}
	return true
}

var forms = map[Scheme]string{
	HF: "hf://ORG/NAME[@REVISION]", S3: "s3://BUCKET[/PREFIX]", OCI: "oci://REGISTRY/REPOSITORY[:TAG][@sha256:…]",
	PVC: "pvc://CLAIM[/FOLDER]", Local: "file:///PATH", HTTPS: "https://HOST/FILE",
}

func parseWeb(s string) (URI, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return URI{}, refuse(Unusable, "the weights' URI is not of the form %s", forms[HTTPS]) // it may hold a credential
	}
	if err := (egress.Policy{}).CheckURL(u, false); err != nil && u.User != nil {
		return URI{}, refuse(Unusable, "%s", err)
	}
	u.Fragment = ""
	return URI{Scheme: HTTPS, URL: u}, nil
}

// String is the URI for people: without the query of https, where credentials are.
func (u URI) String() string {
	switch u.Scheme {
	case HF:
		return "hf://" + u.Name + "@" + u.Revision
	case HTTPS:
		return egress.Shorten(u.URL)
	case OCI:
		s := "oci://" + u.Name
		if u.Revision != "" {
			s += ":" + u.Revision
		}
		if u.Digest != "" {
			s += "@" + u.Digest
		}
		return s
	case Local:
		return "file://" + u.Path
	case S3, PVC:
		if u.Path != "" {
			return string(u.Scheme) + "://" + u.Name + "/" + u.Path
		}
	}
	return string(u.Scheme) + "://" + u.Name
}

// short cuts s for messages, before a query.
func short(s string) string {
	s, _, _ = strings.Cut(s, "?")
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
