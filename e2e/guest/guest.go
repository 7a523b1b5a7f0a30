// SPDX-License-Identifier: Apache-2.0

// This file runs virtual machines in QEMU for tests, with Debian's kernels and with a root file system in memory or on a disk. scripts/debian downloads
// the parts of the machines. The test sends and receives the frames of the network cards. An agent in the machine executes the test's requests.
//
// The processor is emulated, even if the host has KVM. With nested KVM a machine may be slower, or crash at instructions that the outer hypervisor
// leaves to QEMU (such as shlx). A machine takes some seconds of CPU time to boot, and longer if the host is busy. So the time limits are long: they
// end machines that hang, not slow machines. The emulated processor has no AVX, as emulation with AVX takes a tenth longer.

package guest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// Time limits. They are long enough for a busy host.
const (
	bootLimit    = 20 * time.Minute
	commandLimit = 20 * time.Minute
)

// Spec describes a machine.
type Spec struct {
	Kernel  string   // such as 6.12
	Disk    bool     // the root file system is on a disk, and is Debian's with systemd; otherwise it is in memory, with busybox
	Plain   bool     // with Disk: the first boot starts only the agent, without systemd, which takes most of the time of a boot
	Cards   []Card   // network cards
	Modules []string // kernel modules to load at the start; with Disk, systemd loads modules
	Files   string   // a directory that is copied over the root file system before the first boot
	Listen  []string // ports at which the agent receives from its start: "udp/53"
	Tools   []string // programs of this host for a machine without Disk: "ethtool"
	Memory  int      // MB; 0 for 1024
	CPUs    int      // 0 for 1; with more than one, QEMU must emulate all atomic operations by functions

	Start func(*exec.Cmd) error // starts QEMU, as in another network namespace; nil: in this one
}

// Card is a network card of a machine. Its cable ends in a Wire, or at a tap device.
type Card struct {
	Model string // QEMU's name: virtio-net-pci, vmxnet3, igb
	MAC   net.HardwareAddr
	Tap   string // the name of the tap device where QEMU runs; the card then has the offloads of virtio. "": a Wire
}

// Machine is a virtual machine in QEMU. It is killed when the test ends.
type Machine struct {
	t     testing.TB
	spec  Spec
	dir   string // directory for the files of the machine
	parts parts
	disk  string // image, "" for none
	wires []*Wire

	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	channel *net.UnixListener
	answers chan Response
	port    net.Conn // connection to the agent
	last    int      // ID of the last request
	boot    string   // the kernel's ID
	asked   bool     // has booted once, so the disk has Spec.Files
}

// New makes a machine that is powered off.
func New(t testing.TB, spec Spec) *Machine {
	t.Helper()
	testutil.RequireRoot(t)
	m := &Machine{t: t, spec: spec, dir: t.TempDir()}
	m.parts = fetch(t, spec)
	if spec.Disk {
		m.disk = filepath.Join(m.dir, "disk")
		m.host("cp", "--sparse=always", m.parts.root, m.disk)
	}
	for i, c := range spec.Cards {
		var w *Wire
		if c.Tap == "" {
			w = newWire(t, m.wirePath(i))
		}
		m.wires = append(m.wires, w)
	}
	var err error
	if m.channel, err = net.ListenUnix("unix", &net.UnixAddr{Name: m.path("agent")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Kill()
		m.channel.Close()
		if t.Failed() {
			t.Logf("the end of the console:\n%s", m.Console())
		}
	})
	return m
}

// Start makes a machine, powers it on and waits for its agent.
func Start(t testing.TB, spec Spec) *Machine {
	t.Helper()
	m := New(t, spec)
	m.Boot()
	return m
}

func (m *Machine) path(name string) string  { return filepath.Join(m.dir, name) }
func (m *Machine) wirePath(card int) string { return m.path(fmt.Sprint("wire", card)) }

// Wire is the other end of a card's cable; nil for a tap device.
func (m *Machine) Wire(card int) *Wire { return m.wires[card] }

// host runs a command of this host.
func (m *Machine) host(name string, args ...string) {
	m.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		m.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// Boot powers the machine on and waits for its agent.
func (m *Machine) Boot() {
	m.t.Helper()
	m.PowerOn()
	m.Await()
}

// PowerOn powers the machine on. Call Await to wait for the machine's agent.
func (m *Machine) PowerOn() {
	m.t.Helper()
	console, err := os.OpenFile(m.path("console"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer console.Close()
	m.process = exec.Command(m.parts.qemu, m.arguments()...)
	m.process.Stdout, m.process.Stderr = console, console
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	m.ended = make(chan struct{})
	go func(process *exec.Cmd, ended chan struct{}) {
		runtime.LockOSThread() // the kernel kills the process with the thread that started it
		defer runtime.UnlockOSThread()
		defer close(ended)
		start := (*exec.Cmd).Start
		if m.spec.Start != nil {
			start = m.spec.Start
		}
		err := start(process)
		started <- err
		if err == nil {
			process.Wait()
		}
	}(m.process, m.ended)
	if err := <-started; err != nil {
		m.t.Fatalf("QEMU: %v", err)
	}
	for i, w := range m.wires {
		if w != nil {
			m.connected(fmt.Sprint("cable of card ", i), w.listener, w.connect)
		}
	}
	m.answers = make(chan Response, 16)
	m.connected("channel to the agent", m.channel, func(conn net.Conn) {
		m.port = conn
		go receive(conn, m.answers)
	})
}

// connected waits until QEMU connects to the listener, and calls then with the connection.
func (m *Machine) connected(what string, listener *net.UnixListener, then func(net.Conn)) {
	m.t.Helper()
	listener.SetDeadline(time.Now().Add(commandLimit))
	conn, err := listener.Accept()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", what, err, m.Console())
	}
	then(conn)
}

// arguments are the arguments of QEMU.
func (m *Machine) arguments() []string {
	memory, cpus := cmp.Or(m.spec.Memory, 1024), cmp.Or(m.spec.CPUs, 1)
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-machine", "q35",
		"-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", fmt.Sprint(cpus), "-m", fmt.Sprint(memory), "-serial", "stdio", "-monitor", "none",
		"-kernel", m.parts.kernel, "-initrd", m.initrd(),
		// no_timer_check: without it, a kernel panics if a busy host stops it during its test of the timer ("IO-APIC + timer doesn't work",
		// check_timer in arch/x86/kernel/apic/io_apic.c).
		"-append", "console=ttyS0 panic=0 quiet mitigations=off no_timer_check " + m.words(),
		"-device", "virtio-serial-pci", "-chardev", "socket,id=agent,path=" + m.path("agent"), "-device", "virtserialport,chardev=agent",
	}
	for i, c := range m.spec.Cards {
		cable := fmt.Sprintf("stream,id=wire%d,server=off,addr.type=unix,addr.path=%s", i, m.wirePath(i))
		if c.Tap != "" {
			cable = fmt.Sprintf("tap,id=wire%d,ifname=%s,script=no,downscript=no", i, c.Tap)
		}
		args = append(args, "-netdev", cable,
			"-device", fmt.Sprintf("%s,netdev=wire%d,mac=%s,romfile=", c.Model, i, c.MAC))
	}
	if m.disk != "" {
		args = append(args, "-drive", "if=virtio,format=raw,file="+m.disk)
	}
	return args
}

// Kill powers the machine off.
func (m *Machine) Kill() {
	if m.ended == nil {
		return
	}
	m.process.Process.Kill()
	<-m.ended
	m.ended = nil
	m.port.Close()
	for _, w := range m.wires {
		if w != nil {
			w.cut()
		}
	}
}

// Await waits for the first message of the agent after PowerOn or a reboot.
func (m *Machine) Await() {
	m.t.Helper()
	began := time.Now()
	for response := range m.within(bootLimit) {
		if response.Boot != "" && response.Boot != m.boot {
			m.boot, m.asked = response.Boot, true
			m.t.Logf("booted in %.1f s", time.Since(began).Seconds())
			return
		}
	}
	m.t.Fatalf("the machine does not boot:\n%s", m.Console())
}

// within returns an iterator over the agent's messages. The iterator ends after the time limit, or when the connection to the agent ends.
func (m *Machine) within(limit time.Duration) func(func(Response) bool) {
	return func(yield func(Response) bool) {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		for {
			select {
			case response, open := <-m.answers:
				if !open || !yield(response) {
					return
				}
			case <-timer.C:
				return
			}
		}
	}
}

// Console returns the last 6,000 bytes of the console's output.
func (m *Machine) Console() string {
	text, _ := os.ReadFile(m.path("console"))
	return string(text[max(0, len(text)-6000):])
}

// receive decodes the agent's messages and sends them to answers. It closes answers when the connection ends.
func receive(port net.Conn, answers chan<- Response) {
	defer close(answers)
	for in := json.NewDecoder(port); ; {
		var response Response
		if in.Decode(&response) != nil {
			return
		}
		answers <- response
	}
}

// ask sends a request to the agent and returns its answer.
func (m *Machine) ask(request Request) Response {
	m.t.Helper()
	m.send(&request)
	for response := range m.within(time.Duration(request.Seconds)*time.Second + commandLimit) {
		switch {
		case response.Boot != "":
			m.t.Fatalf("the machine has rebooted by itself:\n%s", m.Console())
		case response.ID == request.ID:
			if response.Error != "" {
				m.t.Fatalf("%s: %s: %s", strings.Join(request.Run, " "), response.Error, response.Out)
			}
			return response
		}
	}
	m.t.Fatalf("no answer to %q:\n%s", request.Run, m.Console())
	return Response{}
}

func (m *Machine) send(request *Request) {
	m.t.Helper()
	m.last++
	request.ID = m.last
	if request.Seconds == 0 {
		request.Seconds = int(commandLimit / time.Second)
	}
	text, err := json.Marshal(request)
	if err == nil {
		_, err = m.port.Write(append(text, '\n'))
	}
	if err != nil {
		m.t.Fatalf("asking the agent: %v\n%s", err, m.Console())
	}
}

// Command runs a command in the machine, and returns its output and its exit code.
func (m *Machine) Command(words ...string) (out string, code int) {
	m.t.Helper()
	response := m.ask(Request{Run: words})
	return response.Out, response.Code
}

// Begin starts a command and does not wait for its end.
func (m *Machine) Begin(words ...string) {
	m.t.Helper()
	m.ask(Request{Run: words, Detached: true})
}

// Must runs a command line in the machine's shell and returns its output. The command must succeed.
func (m *Machine) Must(line string) string {
	m.t.Helper()
	out, code := m.Command("sh", "-c", line)
	if code != 0 {
		m.t.Fatalf("%s: exit code %d: %s", line, code, out)
	}
	return out
}

// Write makes a file in the machine.
func (m *Machine) Write(path, text string) {
	m.t.Helper()
	response := m.ask(Request{Run: []string{"sh", "-c", `mkdir -p "${1%/*}" && cat >"$1"`, "-", path}, Stdin: text})
	if response.Code != 0 {
		m.t.Fatalf("writing %s: %s", path, response.Out)
	}
}

// Listen makes the agent receive at ports such as "udp/53" and "tcp/80".
func (m *Machine) Listen(ports ...string) {
	m.t.Helper()
	m.ask(Request{Listen: ports})
}

// Received returns how often the agent has received each text at each port. A key is a port and a text, as "udp/53 hello".
func (m *Machine) Received() map[string]int {
	m.t.Helper()
	return m.ask(Request{Received: true}).Received
}

// Reboot runs a command that reboots the machine, and waits for the machine's agent.
func (m *Machine) Reboot(words ...string) {
	m.t.Helper()
	m.send(&Request{Run: words})
	m.Await()
}

// words returns the parameters on the kernel's command line that are for the init script of this package and for systemd.
func (m *Machine) words() string {
	var b bytes.Buffer
	if m.spec.Disk {
		b.WriteString("floodwall.disk net.ifnames=0 systemd.show_status=0 ")
		if m.spec.Plain && !m.asked {
			b.WriteString("floodwall.plain ")
		}
	}
	fmt.Fprintf(&b, "floodwall.modules=%s floodwall.listen=%s", strings.Join(m.spec.Modules, ","), strings.Join(m.spec.Listen, ","))
	return b.String()
}
