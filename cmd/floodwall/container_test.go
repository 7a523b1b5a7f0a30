package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/floodwall/floodwall/internal/testutil"
)

// containerDir has the files that docs/guides/containers.md describes.
const containerDir = top + "/contrib/container"

// composed is what compose.yaml says of the service.
type composed struct {
	NetworkMode string   `yaml:"network_mode"`
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	SecurityOpt []string `yaml:"security_opt"`
	Volumes     []string `yaml:"volumes"`
}

// readComposed reads compose.yaml.
func readComposed(t *testing.T) composed {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(containerDir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Services map[string]composed }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Services["floodwall"]
}

// flags are those of podman for the same.
func (c composed) flags(t *testing.T, policies string) (list []string) {
	t.Helper()
	profile, err := filepath.Abs(containerDir)
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, "--network="+c.NetworkMode)
	if c.ReadOnly {
		list = append(list, "--read-only")
	}
	for _, name := range c.CapDrop {
		list = append(list, "--cap-drop="+name)
	}
	for _, name := range c.CapAdd {
		list = append(list, "--cap-add="+name)
	}
	for _, option := range c.SecurityOpt {
		list = append(list, "--security-opt="+strings.TrimSuffix(strings.Replace(option, "./", profile+"/", 1), ":true"))
	}
	for _, volume := range c.Volumes {
		list = append(list, "--volume="+strings.Replace(volume, "/etc/floodwall:", policies+":", 1))
	}
	return list
}

// TestContainer builds the image with buildah, and runs it with podman as compose.yaml says, in the network namespace of the test. The
// policy that it applies filters, also when the daemon's container is killed.
func TestContainer(t *testing.T) {
	for _, tool := range []string{"buildah", "podman", "crun"} {
		testutil.RequireTool(t, tool)
	}
	if !inside(t) {
		return
	}
	w := newWatch(t)
	dir := t.TempDir()
	run := func(script string) (string, error) {
		cmd := exec.Command("bash", "-euc", "cd "+dir+"\n"+script)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir+"/tmp", "HOME="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(script string) string {
		t.Helper()
		out, err := run(script)
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return out
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := filepath.Abs(filepath.Join(containerDir, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	const storage = " --root store --runroot run --storage-driver vfs "
	must("mount -t tmpfs containers . && mount -t cgroup2 cgroup2 /sys/fs/cgroup")
	t.Cleanup(func() { must("cd /; umount -l " + dir + " /sys/fs/cgroup") })
	must(`mkdir context tmp policies; mkdir -p /run/floodwall /var/lib/floodwall
chown 0:0 /sys/fs/bpf /run/floodwall /var/lib/floodwall
cp ` + self + ` context/floodwall; cp ` + recipe + ` context; cp ` + w.policy + ` policies/policy.yaml; sed -i '/state: invalid/d' policies/policy.yaml
buildah` + storage + `build --isolation chroot --network host -t floodwall context`)
	podman := "podman" + storage + "--tmpdir tmp --cgroup-manager cgroupfs --runtime crun --events-backend none "
	t.Cleanup(func() { // before the storage goes; each container has a process that ends with it
		must(podman + "rm --all --force --time 0; for i in $(seq 100); do ! pgrep -f \"[c]onmon .* $PWD/run/\" >/dev/null || sleep 0.1; done")
	})
	container := podman + "run --rm --cgroups=disabled --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 " + strings.Join(readComposed(t).flags(t, dir+"/policies"), " ")

	if out := must(container + " floodwall check /etc/floodwall/policy.yaml"); !strings.Contains(out, "policy.yaml: ok: ") {
		t.Errorf("check: %s", out)
	}
	w.arrives()
	must(container + " floodwall apply /etc/floodwall/policy.yaml")
	w.filtered()
	received := w.received.Load()
	if out := must(container + " floodwall status"); !strings.Contains(out, "target xdp") || !strings.Contains(out, "flood") {
		t.Errorf("status: %s", out)
	}
	must(container + " --detach --name daemon floodwall")
	waitFor(t, "the daemon in a container", func() bool {
		a, err := get(readSocket, "/v1/health")
		return err == nil && a.status == http.StatusOK
	})
	must(podman + "kill daemon")
	w.filtered()
	if passed := w.received.Load() - received; passed > 0 {
		t.Errorf("%d packets came in that the policy drops", passed)
	}
	must(container + " floodwall unload")
	w.arrives()
}

// TestDaemonSet has the manifest for Kubernetes give what compose.yaml gives. In the long form the types of Kubernetes read it.
func TestDaemonSet(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(containerDir, "daemonset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type rights struct {
		ReadOnlyRootFilesystem bool `yaml:"readOnlyRootFilesystem"`
		Capabilities           struct{ Drop, Add []string }
	}
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					HostNetwork    bool `yaml:"hostNetwork"`
					InitContainers []struct {
						SecurityContext rights `yaml:"securityContext"`
					} `yaml:"initContainers"`
					Containers []struct {
						SecurityContext rights `yaml:"securityContext"`
					}
				}
			}
		}
	}
	_, second, _ := strings.Cut(string(text), "\n---\n")
	if err := yaml.Unmarshal([]byte(second), &set); err != nil {
		t.Fatal(err)
	}
	want, pod := readComposed(t), set.Spec.Template.Spec
	if !pod.HostNetwork || len(pod.InitContainers) != 1 || len(pod.Containers) != 1 {
		t.Fatalf("%+v", pod)
	}
	for _, got := range []rights{pod.InitContainers[0].SecurityContext, pod.Containers[0].SecurityContext} {
		if !got.ReadOnlyRootFilesystem || !slices.Equal(got.Capabilities.Add, want.CapAdd) || !slices.Equal(got.Capabilities.Drop, want.CapDrop) {
			t.Errorf("%+v, want the capabilities of compose.yaml: %+v", got, want)
		}
	}
	if !testutil.Long() {
		return
	}
	cmd := exec.Command("../../scripts/go", "run", "./manifest", "../../contrib/container/daemonset.yaml")
	cmd.Dir, cmd.Path = filepath.Join(top, "packaging/tools"), "../../scripts/go"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
