// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/floodwall/floodwall/test/testutil"
)

// containerDir has the files that docs/guides/containers.md describes.
const containerDir = top + "/contrib/container"

// composed is the service in compose.yaml.
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

// flags returns the flags of podman that have the same meaning as the service in compose.yaml.
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

// containers is a directory with the image. buildah and podman store all their files in it.
type containers struct {
	*testing.T
	dir    string
	podman string // the podman command, for run and must
}

// newContainers builds the image from the Dockerfile and this binary. Its directory policies contains a policy without the key state, because the
// image has no nft.
func newContainers(w *watch) *containers {
	w.Helper()
	for _, tool := range []string{"buildah", "podman", "crun"} {
		testutil.RequireTool(w, tool)
	}
	const storage = " --root $PWD/store --runroot $PWD/run --storage-driver vfs "
	c := &containers{T: w.T, dir: w.TempDir(), podman: "podman" + storage + "--tmpdir $PWD/tmp --cgroup-manager cgroupfs --events-backend none --runtime crun "}
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	recipe, err := filepath.Abs(filepath.Join(containerDir, "Dockerfile"))
	if err != nil {
		w.Fatal(err)
	}
	c.must(`mount -t tmpfs containers . && if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then mount -t cgroup2 cgroup2 /sys/fs/cgroup; fi`)
	c.Cleanup(func() { c.must("cd /; umount -l " + c.dir) }) // /sys/fs/cgroup goes with the namespace
	c.must(`mkdir context tmp policies; mkdir -p /run/floodwall /var/lib/floodwall
chown 0:0 /sys/fs/bpf /run/floodwall /var/lib/floodwall
cp ` + self + ` context/floodwall; cp ` + recipe + ` context; cp ` + w.policy + ` policies/policy.yaml; sed -i '/state: invalid/d' policies/policy.yaml
buildah` + storage + `build --isolation chroot --network host -t floodwall context`)
	c.Cleanup(func() { // before the storage is removed; each container has a process that ends with it
		c.must(c.podman + "pod rm --all --force --time 0; " + c.podman + "rm --all --force --time 0; for i in $(seq 600); do ! pgrep -f \"[c]onmon .* $PWD/run/\" >/dev/null || sleep 0.1; done")
	})
	return c
}

// run runs a shell script as root in the directory.
func (c *containers) run(script string) (string, error) {
	cmd := exec.Command("bash", "-euc", "cd "+c.dir+"\n"+script)
	cmd.Env = append(os.Environ(), "TMPDIR="+c.dir+"/tmp", "HOME="+c.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs a script that must succeed, and returns its output.
func (c *containers) must(script string) string {
	c.Helper()
	out, err := c.run(script)
	if err != nil {
		c.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// serves waits until a daemon reports that the policy is in force.
func (c *containers) serves() {
	c.Helper()
	waitFor(c.T, "the daemon in a container", func() bool {
		a, err := get(readSocket, "/v1/health")
		return err == nil && a.status == http.StatusOK
	})
}

// TestContainer builds the image with buildah and runs it with podman, with the settings of compose.yaml, in the network namespace of the test. Its
// policy must filter packets. It must still filter after the daemon's container was killed.
func TestContainer(t *testing.T) {
	if !inside(t) {
		return
	}
	w := newWatch(t)
	c := newContainers(w)
	container := c.podman + "run --rm --cgroups=disabled --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 " + strings.Join(readComposed(t).flags(t, c.dir+"/policies"), " ")

	if out := c.must(container + " floodwall check /etc/floodwall/policy.yaml"); !strings.Contains(out, "policy.yaml: ok: ") {
		t.Errorf("check: %s", out)
	}
	w.arrives()
	c.must(container + " floodwall apply /etc/floodwall/policy.yaml")
	w.filtered()
	received := w.received.Load()
	if out := c.must(container + " floodwall status"); !strings.Contains(out, "target xdp") || !strings.Contains(out, "flood") {
		t.Errorf("status: %s", out)
	}
	c.must(container + " --detach --name daemon floodwall")
	c.serves()
	c.must(c.podman + "kill daemon")
	w.filtered()
	if passed := w.received.Load() - received; passed > 0 {
		t.Errorf("%d packets came in that the policy drops", passed)
	}
	c.must(container + " floodwall unload")
	w.arrives()
}

// TestPod runs the DaemonSet's pod with podman. Its init container applies the policy of the ConfigMap. Then the daemon runs. The policy must still
// filter packets after the pod has ended.
func TestPod(t *testing.T) {
	testutil.RequireTool(t, "busybox")
	if !inside(t) {
		return
	}
	w := newWatch(t)
	c := newContainers(w)
	policy, err := os.ReadFile(c.dir + "/policies/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pod.yaml")
	writeFile(t, file, podOf(t, string(policy)))
	// The container that holds the pod's namespaces only sleeps. Cgroups and limits belong to the machine, and this root may not set them.
	c.must(`mkdir pause; cp "$(type -p busybox)" pause/busybox
printf 'FROM scratch\nCOPY busybox /bin/busybox\nENTRYPOINT ["/bin/busybox", "sleep", "1000000"]\n' >pause/Dockerfile
printf '[engine]\ninfra_image = "localhost/pause:latest"\n[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n' >containers.conf
printf '#!/bin/sh\nexec crun --cgroup-manager=disabled "$@"\n' >crun-without-cgroups; chmod +x crun-without-cgroups
buildah --root $PWD/store --runroot $PWD/run --storage-driver vfs build --isolation chroot --network host -t pause pause`)
	c.podman = "export CONTAINERS_CONF=$PWD/containers.conf; " + c.podman + "--runtime $PWD/crun-without-cgroups "
	w.arrives()
	c.must(c.podman + "kube play " + file)
	w.filtered()
	received := w.received.Load()
	c.serves()
	if out := c.must(c.podman + "exec floodwall-daemon /usr/bin/floodwall status"); !strings.Contains(out, "target xdp") || !strings.Contains(out, "flood") {
		t.Errorf("the probe of the pod: %s", out)
	}
	c.must(c.podman + "pod rm --all --force --time 0")
	w.filtered()
	if passed := w.received.Load() - received; passed > 0 {
		t.Errorf("%d packets came in that the policy drops", passed)
	}
}

// podOf returns the pod of daemonset.yaml with another policy, in a form for podman 4.3. That version knows seccompProfile only by its older
// annotation. It restarts an init container whatever its exit status is, unless the pod's restart policy is Never.
func podOf(t *testing.T, policy string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(containerDir, "daemonset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "\n---\n")
	type object = map[string]any
	var config object
	var set struct {
		Spec struct{ Template struct{ Spec object } }
	}
	if err := errors.Join(yaml.Unmarshal([]byte(first), &config), yaml.Unmarshal([]byte(second), &set)); err != nil {
		t.Fatal(err)
	}
	config["data"] = object{"policy.yaml": policy}
	spec := set.Spec.Template.Spec
	spec["restartPolicy"] = "Never"
	pod := object{"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": object{"name": "floodwall", "annotations": object{"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}}}
	one, err1 := yaml.Marshal(config)
	two, err2 := yaml.Marshal(pod)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return string(one) + "---\n" + string(two)
}

// TestDaemonSet checks that the Kubernetes manifest gives the same rights as compose.yaml. The long form also parses the manifest with the types of
// Kubernetes.
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
	cmd.Dir, cmd.Path, cmd.Env = filepath.Join(top, "packaging/tools"), "../../scripts/go", append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
