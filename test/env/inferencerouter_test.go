package env

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/pki"
)

// quiet is how long nothing may happen for it to count as never.
const quiet = 2 * time.Second

var _ = Describe("An installation with the rights of its generated roles", Ordered, func() {
	var in *installation
	BeforeAll(func() { in = install() })

	children := func(namespace string) map[string]client.Object {
		return map[string]client.Object{
			"Deployment":     &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-router"}},
			"Service":        &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-router"}},
			"ServiceAccount": &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-router"}},
			"RoleBinding":    &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-router"}},
			"Budget":         &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-router"}},
		}
	}
	versions := func(g Gomega, namespace string) map[string]string {
		found := map[string]string{}
		for kind, o := range children(namespace) {
			in.get(g, namespace, o.GetName(), o)
			found[kind] = o.GetResourceVersion()
		}
		return found
	}
	served := func(namespace string) map[string]string {
		Expect(in.Create(in.ctx, aModel(namespace, "m"))).To(Succeed())
		var found map[string]string
		Eventually(func(g Gomega) {
			router := &v1alpha1.InferenceRouter{}
			in.get(g, namespace, "default", router)
			g.Expect(router.Status.ClusterIP).NotTo(BeEmpty())
			g.Expect(router.Status.URL).To(Equal("http://default-router." + namespace + ".svc/v1"))
			found = versions(g, namespace)
		}).Should(Succeed())
		return found
	}
	change := func(namespace string, by func(*v1alpha1.InferenceRouterSpec)) {
		Eventually(func(g Gomega) {
			router := &v1alpha1.InferenceRouter{}
			in.get(g, namespace, "default", router)
			by(&router.Spec)
			g.Expect(in.Update(in.ctx, router)).To(Succeed())
		}).Should(Succeed())
		Eventually(func(g Gomega) {
			router := &v1alpha1.InferenceRouter{}
			in.get(g, namespace, "default", router)
			g.Expect(router.Status.ObservedGeneration).To(Equal(router.Generation))
		}).Should(Succeed())
	}

	It("makes a model's namespace its router with all children, owned by it", func() {
		ns := in.namespace()
		served(ns)
		router := &v1alpha1.InferenceRouter{}
		in.get(Default, ns, "default", router)
		for kind, o := range children(ns) {
			in.get(Default, ns, o.GetName(), o)
			Expect(metav1.IsControlledBy(o, router)).To(BeTrue(), kind)
		}
	})

	It("writes nothing when nothing has changed, nor when routers can read a change themselves", func() {
		ns := in.namespace()
		before := served(ns)
		change(ns, func(s *v1alpha1.InferenceRouterSpec) {
			s.Heartbeat.IntervalMilliseconds, s.Ring.VirtualNodes, s.Timeouts.IdleSeconds = 2000, 100, 30
		})
		Consistently(func(g Gomega) { g.Expect(versions(g, ns)).To(Equal(before)) }).WithTimeout(quiet).Should(Succeed())
	})

	It("takes back what it gave, and undoes what others did to it", func() {
		ns := in.namespace()
		served(ns)
		change(ns, func(s *v1alpha1.InferenceRouterSpec) {
			s.Replicas, s.Service.Port, s.Service.Annotations = new(int32(1)), 8000, map[string]string{"a": "b"}
		})
		service, budget := &corev1.Service{}, &policyv1.PodDisruptionBudget{}
		Eventually(func(g Gomega) {
			in.get(g, ns, "default-router", service)
			g.Expect(service.Annotations).To(HaveKeyWithValue("a", "b"))
			g.Expect(service.Spec.Ports[0].Port).To(Equal(int32(8000)))
			err := in.Get(in.ctx, client.ObjectKey{Namespace: ns, Name: "default-router"}, budget)
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
		}).Should(Succeed())
		change(ns, func(s *v1alpha1.InferenceRouterSpec) { s.Service.Annotations = nil })
		Eventually(func(g Gomega) {
			in.get(g, ns, "default-router", service)
			g.Expect(service.Annotations).NotTo(HaveKey("a"))
			service.Spec.Selector = map[string]string{"stolen": "yes"}
			g.Expect(in.Update(in.ctx, service)).To(Succeed())
		}).Should(Succeed())
		Eventually(func(g Gomega) {
			in.get(g, ns, "default-router", service)
			g.Expect(service.Spec.Selector).To(HaveKeyWithValue(v1alpha1.LabelRouter, "default"))
		}).Should(Succeed())
	})

	It("removes the defaults with the last model, and only while they carry the label", func() {
		ns := in.namespace()
		served(ns)
		pool := &v1alpha1.WorkerPool{}
		Eventually(func(g Gomega) {
			in.get(g, ns, "default", pool)
			delete(pool.Labels, v1alpha1.LabelCreatedFor)
			g.Expect(in.Update(in.ctx, pool)).To(Succeed())
		}).Should(Succeed())
		Expect(in.Create(in.ctx, aModel(ns, "second"))).To(Succeed())
		router := &v1alpha1.InferenceRouter{}
		Expect(in.Delete(in.ctx, aModel(ns, "m"))).To(Succeed())
		Consistently(func(g Gomega) { in.get(g, ns, "default", router) }).WithTimeout(quiet).Should(Succeed())
		Expect(in.Delete(in.ctx, aModel(ns, "second"))).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(in.Get(in.ctx, client.ObjectKey{Namespace: ns, Name: "default"}, router))
		}).Should(BeTrue())
		Consistently(func(g Gomega) { in.get(g, ns, "default", pool) }).WithTimeout(quiet).Should(Succeed())
		Eventually(func(g Gomega) {
			in.get(g, ns, "default", pool)
			g.Expect(pool.Status.Conditions).To(ContainElement(HaveField("Type", string(v1alpha1.Ready))))
			g.Expect(*pool.Status.Models).To(BeZero())
		}).Should(Succeed())
	})

	It("keeps the certificates of a namespace from its first model until its last pod", func() {
		ns := in.namespace()
		served(ns)
		ca, secret := &corev1.Secret{}, &corev1.Secret{}
		in.get(Default, home, "ringfleet-ca", ca)
		authority, err := pki.ParseCA(ca.Data)
		Expect(err).NotTo(HaveOccurred())
		valid := func(g Gomega, name string, role identity.Role) {
			in.get(g, ns, name, secret)
			why, _ := pki.NeedsRenewal(secret.Data, authority, identity.ID{Namespace: ns, Role: role}, time.Now())
			g.Expect(why).To(BeEmpty())
		}
		Eventually(func(g Gomega) { valid(g, v1alpha1.SecretRouterTLS, identity.Router) }).Should(Succeed())
		Eventually(func(g Gomega) { valid(g, v1alpha1.SecretWorkerTLS, identity.Worker) }).Should(Succeed())

		By("making a deleted Secret again and repairing a broken one")
		Expect(in.Delete(in.ctx, secret)).To(Succeed())
		Eventually(func(g Gomega) { valid(g, v1alpha1.SecretWorkerTLS, identity.Worker) }).Should(Succeed())
		secret.Data[identity.KeyFile] = []byte("x")
		Expect(in.Update(in.ctx, secret)).To(Succeed())
		Eventually(func(g Gomega) { valid(g, v1alpha1.SecretWorkerTLS, identity.Worker) }).Should(Succeed())

		By("keeping them while pods are left")
		pods := &corev1.PodList{}
		Eventually(func(g Gomega) {
			g.Expect(in.List(in.ctx, pods, client.InNamespace(ns))).To(Succeed())
			g.Expect(pods.Items).NotTo(BeEmpty())
		}).Should(Succeed())
		Expect(in.Delete(in.ctx, aModel(ns, "m"))).To(Succeed())
		Consistently(func(g Gomega) { in.get(g, ns, v1alpha1.SecretWorkerTLS, secret) }).WithTimeout(quiet).Should(Succeed())
		Expect(in.DeleteAllOf(in.ctx, &corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(func(g Gomega) {
			secrets := &corev1.SecretList{}
			g.Expect(in.List(in.ctx, secrets, client.InNamespace(ns))).To(Succeed())
			g.Expect(secrets.Items).To(BeEmpty())
		}).Should(Succeed())
	})

	It("never replaces an authority that it can't read, and goes on when it is mended", func() {
		ca := &corev1.Secret{}
		in.get(Default, home, "ringfleet-ca", ca)
		whole := ca.DeepCopy()
		ca.Data[identity.CertFile] = []byte("x")
		Expect(in.Update(in.ctx, ca)).To(Succeed())
		ns := in.namespace()
		Expect(in.Create(in.ctx, aModel(ns, "m"))).To(Succeed())
		router := &v1alpha1.InferenceRouter{}
		Eventually(func(g Gomega) {
			in.get(g, ns, "default", router)
			g.Expect(router.Status.Conditions).To(ContainElement(And(
				HaveField("Reason", string(v1alpha1.ReasonReconcileFailed)), HaveField("Message", ContainSubstring("Secret "+home+"/ringfleet-ca")))))
		}).Should(Succeed())
		in.get(Default, home, "ringfleet-ca", ca)
		Expect(ca.Data[identity.CertFile]).To(Equal([]byte("x")))
		ca.Data = whole.Data
		Expect(in.Update(in.ctx, ca)).To(Succeed())
		Eventually(func(g Gomega) { in.get(g, ns, v1alpha1.SecretRouterTLS, &corev1.Secret{}) }).Should(Succeed())
	})
})
