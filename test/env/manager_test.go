package env

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/manager"
)

// home is the namespace of an installation.
const home = "ringfleet-system"

// installation is the whole manager, as wired for production and with no more rights than its generated roles give,
// against an API server of its own.
type installation struct {
	client.Client
	ctx context.Context
}

// install starts an installation that ends with the container of the calling BeforeAll.
func install() *installation {
	server := &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join("..", "..", "api", "crd")}, ErrorIfCRDPathMissing: true}
	config, err := server.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Eventually(server.Stop).Should(Succeed()) })
	admin, err := client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	in := &installation{Client: admin, ctx: ctx}
	Expect(in.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}})).To(Succeed())
	in.grant("manager")
	user, err := server.AddUser(envtest.User{Name: "manager"}, nil)
	Expect(err).NotTo(HaveOccurred())
	in.start(user.Config())
	return in
}

func (in *installation) start(config *rest.Config) {
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- manager.RunAt(running, config, manager.Options{
			Namespace: home, CASecret: "ringfleet-ca", WorkerImage: "ringfleet/worker:dev", WorkerCUDAImage: "ringfleet/worker-cuda:dev",
			RouterImage: "ringfleet/router:dev",
			PullPolicy:  "IfNotPresent", RouterClusterRole: "ringfleet-router", MetricsAddress: "0", ProbeAddress: "0", LeaderElect: true,
		})
	}()
	DeferCleanup(func() {
		stop()
		Expect(<-ended).To(Succeed())
	})
}

// grant gives user what the generated roles say, and makes the routers' role.
func (in *installation) grant(user string) {
	subjects := []rbacv1.Subject{{Kind: "User", Name: user, APIGroup: rbacv1.GroupName}}
	for _, document := range append(documents("rbac"), documents("router")...) {
		kind := &metav1.TypeMeta{}
		Expect(yaml.Unmarshal(document, kind)).To(Succeed())
		var role client.Object = &rbacv1.ClusterRole{}
		if kind.Kind == "Role" {
			role = &rbacv1.Role{}
		}
		Expect(yaml.UnmarshalStrict(document, role)).To(Succeed())
		Expect(in.Create(ctx, role)).To(Succeed())
		if role.GetName() == "ringfleet-router" {
			continue
		}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind.Kind, Name: role.GetName()}
		meta := metav1.ObjectMeta{Name: "manager", Namespace: role.GetNamespace()}
		var binding client.Object = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		if kind.Kind == "Role" {
			binding = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		}
		Expect(in.Create(ctx, binding)).To(Succeed())
	}
}

// documents are the objects in config/FOLDER/role.yaml.
func documents(folder string) [][]byte {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", folder, "role.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var found [][]byte
	for _, d := range bytes.Split(text, []byte("---\n")) {
		if len(bytes.TrimSpace(d)) > 0 {
			found = append(found, d)
		}
	}
	return found
}

// namespace makes a namespace of the installation.
func (in *installation) namespace() string {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	Expect(in.Create(in.ctx, ns)).To(Succeed())
	return ns.Name
}

// get reads an object of a namespace by name.
func (in *installation) get(g Gomega, namespace, name string, into client.Object) {
	g.ExpectWithOffset(1, in.Get(in.ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)).To(Succeed())
}

// aModel is the least that a user has to write.
func aModel(namespace, name string) *v1alpha1.InferenceModel {
	return &v1alpha1.InferenceModel{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.InferenceModelSpec{Weights: v1alpha1.Weights{URI: "oci://registry.example/models/tiny:1"}},
	}
}
