package sourcetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Variable names the program of a real S3 server, versitygw. Without it tests of object stores are skipped.
const S3Variable = "RINGFLEET_TEST_S3"

// Key and Secret are the server's credentials.
const (
	Key    = "AKIATEST"
	Secret = "passw0rdpassw0rd"
)

// S3 is a running server with one bucket, weights.
type S3 struct {
	// URL is its endpoint.
	URL    string
	t      *testing.T
	client *minio.Client
}

// StartS3 runs a server until the test ends.
func StartS3(t *testing.T) *S3 {
	t.Helper()
	program := os.Getenv(S3Variable)
	if program == "" {
		t.Skipf("%s is not set: %s=$(go tool -modfile=hack/s3.mod -n versitygw)", S3Variable, S3Variable)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	dir := t.TempDir()
	for _, d := range []string{"data", "meta"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--port", address, "--quiet", "posix", "--sidecar", filepath.Join(dir, "meta"), filepath.Join(dir, "data"))
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + Key, "ROOT_SECRET_KEY=" + Secret}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	s := &S3{URL: "http://" + address, t: t}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s.client, err = minio.New(address, &minio.Options{Creds: credentials.NewStaticV4(Key, Secret, ""), Region: "us-east-1", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	s.await(ctx)
	return s
}

// await makes the bucket, once the server answers.
func (s *S3) await(ctx context.Context) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		err := s.client.MakeBucket(ctx, "weights", minio.MakeBucketOptions{Region: "us-east-1"})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal(err)
		}
	}
}

// Put stores an object; checksum also stores its SHA-256 with it, and parts of 5 MiB make its ETag that of a multipart upload.
func (s *S3) Put(key string, b []byte, checksum, parts bool) {
	s.t.Helper()
	o := minio.PutObjectOptions{DisableMultipart: !parts, PartSize: 5 << 20}
	if checksum {
		sum := sha256.Sum256(b)
		o.UserMetadata = map[string]string{"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum[:])}
	}
	if _, err := s.client.PutObject(s.t.Context(), "weights", key, bytes.NewReader(b), int64(len(b)), o); err != nil {
		s.t.Fatal(err)
	}
}
