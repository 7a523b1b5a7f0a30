// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/lab"
)

// product is `floodwall` on a host, as an operator runs it: the command line, the daemon, its output and its API. The host has a /run and a BPF file
// system that nobody else sees.
type product struct {
	host    *lab.Host
	program string
	dir     string   // of its files: state, and the sockets
	mounts  *os.File // the mount namespace of its processes
	cpu     int      // of its processes; or anyCPU

	daemon *lab.Process

	mu     sync.Mutex
	events []api.Event // each with the time of its arrival here
}

// newProduct prepares the host. Its files are in dir, which may contain the state of an earlier daemon.
func newProduct(h *lab.Host, program, dir string) (p *product, err error) {
	p = &product{host: h, program: program, dir: dir, cpu: anyCPU}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		p.mounts, err = newMounts()
		made <- err
	}()
	return p, <-made
}

// anyCPU lets the scheduler choose the CPU.
const anyCPU = -1

// newMounts gives the calling thread an empty /run, and an empty BPF file system at the usual place. It returns the thread's mount namespace.
func newMounts() (*os.File, error) {
	if err := lab.PrivateRun(); err != nil {
		return nil, err
	}
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700"); err != nil {
		return nil, fmt.Errorf("mounting bpf at /sys/fs/bpf: %w", err)
	}
	return os.Open("/proc/thread-self/ns/mnt")
}

// start starts a command in the host, with the host's mounts.
func (p *product) start(c *exec.Cmd) (*lab.Process, error) {
	return p.host.Start(c, func() error {
		// A thread that shares its directory with others cannot change its mounts (setns(2)).
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(p.mounts.Fd()), unix.CLONE_NEWNS)
		}
		if err != nil {
			return fmt.Errorf("mounts of the host: %w", err)
		}
		if p.cpu == anyCPU {
			return nil
		}
		return lab.Place(p.cpu, lab.Ordinary)
	})
}

func (p *product) state() string { return filepath.Join(p.dir, "state") }

// run runs a command until it ends.
func (p *product) run(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	c := exec.CommandContext(ctx, p.program, append(args, "--state", p.state())...)
	c.Stdout, c.Stderr = &out, &out
	running, err := p.start(c)
	if err == nil {
		err = running.Wait()
	}
	if err != nil {
		return fmt.Errorf("floodwall %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// apply applies a policy.
func (p *product) apply(ctx context.Context, text string) error {
	file := filepath.Join(p.dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return p.run(ctx, "apply", file, "--target", "xdp")
}

// startWait is the longest time until the daemon must answer.
const startWait = 30 * time.Second

// watch starts the daemon, and waits until it answers.
func (p *product) watch(ctx context.Context) (err error) {
	c := exec.Command(p.program, "daemon", "--json", "--state", p.state(), "--run", filepath.Join(p.dir, "run"))
	out, in := io.Pipe()
	c.Stdout = in
	if p.daemon, err = p.start(c); err != nil {
		return fmt.Errorf("floodwall daemon: %w", err)
	}
	go p.follow(out)
	go func() {
		<-p.daemon.Ended
		in.Close()
	}()
	for late := time.Now().Add(startWait); ; wait(ctx, 20*time.Millisecond) {
		var health struct{}
		if err = p.get(ctx, "/v1/health", &health); err == nil {
			return nil
		}
		select {
		case <-p.daemon.Ended:
			return p.complaint()
		default:
		}
		if ctx.Err() != nil || time.Now().After(late) {
			return errors.Join(ctx.Err(), fmt.Errorf("floodwall daemon: it does not answer: %w", err))
		}
	}
}

// complaint returns the reason why the daemon ended.
func (p *product) complaint() error {
	lines := strings.Split(p.daemon.Complaint(), "\n")
	return fmt.Errorf("floodwall daemon: ended: %w: %s", errors.Join(p.daemon.Err), lines[len(lines)-1])
}

// follow reads events of attacks until the daemon ends.
func (p *product) follow(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e := api.Event{Data: &attack.Turn{}}
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Kind != api.KindAttack {
			continue
		}
		e.Time = time.Now()
		p.mu.Lock()
		p.events = append(p.events, e)
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, out)
}

// told returns the events of attacks so far.
func (p *product) told() []api.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

// get sends a request to the daemon's API, and reads its answer.
func (p *product) get(ctx context.Context, path string, answer any) error {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(p.dir, "run", "read.sock"))
		}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://floodwall"+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, bytes.TrimSpace(text))
	}
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	return err
}

// endWait is the longest time that the daemon may take to end.
const endWait = 20 * time.Second

// stop ends the daemon, which then saves its state.
func (p *product) stop() error {
	if p.daemon == nil {
		return nil
	}
	defer func() { p.daemon = nil }()
	if p.daemon.Stop(endWait) {
		return fmt.Errorf("floodwall daemon: it does not end within %v", endWait)
	}
	if p.daemon.Err != nil {
		return p.complaint()
	}
	return nil
}

// close ends the daemon. The host's mounts disappear with the daemon.
func (p *product) close() error { return errors.Join(p.stop(), p.mounts.Close()) }

// clockTick is the unit of times in /proc/PID/stat on all architectures for which Go supports Linux (sysconf(3), _SC_CLK_TCK).
const clockTick = time.Second / 100

// used reads from /proc/PID/stat and status (proc(5)) the resources that the daemon has used: its CPU time, and the most memory so far, in bytes.
func (p *product) used() (cpu time.Duration, memory int64, err error) {
	dir := fmt.Sprintf("/proc/%d/", p.daemon.Process.Pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, 0, fmt.Errorf("%sstat: %d fields", dir, len(fields))
	}
	for _, f := range fields[11:13] { // user and system time
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("%sstat: %w", dir, err)
		}
		cpu += time.Duration(ticks) * clockTick
	}
	status, err := os.ReadFile(dir + "status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, err = fmt.Sscan(rest, &memory) // in kB
		}
	}
	return cpu, memory << 10, err
}
