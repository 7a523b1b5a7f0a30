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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// product is `floodwall` on a host, as an operator runs it: the command line, the daemon, what the daemon prints and what its API says. The host
// has a /run and a BPF file system of its own, which nobody else sees.
type product struct {
	host    *lab.Host
	program string
	dir     string // of its files: state, and the sockets
	orders  chan func()
	ended   sync.WaitGroup

	daemon *exec.Cmd
	over   chan struct{} // closed when the daemon has ended,
	err    error         // with this
	stderr bytes.Buffer

	mu     sync.Mutex
	events []detectEvent
}

// detectEvent is one that the daemon tells of, and when it came here.
type detectEvent struct {
	at   time.Time
	Kind string `json:"kind"`
	Text string `json:"text"`
	Data struct {
		State  string `json:"state"`
		Rule   string `json:"rule"`
		Attack struct {
			ID      string   `json:"id"`
			Vectors []string `json:"vectors"`
		} `json:"attack"`
	} `json:"data"`
}

// newProduct prepares the host. Its files are in a directory, which may have the state of a daemon before.
func newProduct(h *lab.Host, program, dir string) (*product, error) {
	p := &product{host: h, program: program, dir: dir, orders: make(chan func())}
	ready := make(chan error)
	p.ended.Go(func() { p.serve(ready) })
	if err := <-ready; err != nil {
		return nil, err
	}
	return p, nil
}

// serve starts processes on a thread that has the mounts of the host. The kernel kills them with the thread (prctl(2), PR_SET_PDEATHSIG), and the
// mounts go with the last of them.
func (p *product) serve(ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	err := mountsOfItsOwn()
	ready <- err
	if err != nil {
		return
	}
	for order := range p.orders {
		order()
	}
}

// mountsOfItsOwn gives the calling thread an empty /run, and an empty BPF file system at the usual place.
func mountsOfItsOwn() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	for _, m := range []struct{ kind, at, options string }{{"tmpfs", "/run", "mode=0755"}, {"bpf", "/sys/fs/bpf", "mode=0700"}} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.kind, m.at, err)
		}
	}
	return nil
}

// stay has all that is started from now on stay on a CPU.
func (p *product) stay(cpu int) error {
	placed := make(chan error, 1)
	p.orders <- func() { placed <- lab.Place(cpu, lab.Ordinary) }
	return <-placed
}

// start starts a command of the program in the host.
func (p *product) start(c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setsid: true} // Ctrl-C is for the bench, which ends it
	started := make(chan error, 1)
	p.orders <- func() { started <- p.host.Do(c.Start) }
	return <-started
}

func (p *product) state() string { return filepath.Join(p.dir, "state") }

// run runs a command to its end.
func (p *product) run(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	c := exec.CommandContext(ctx, p.program, append(args, "--state", p.state())...)
	c.Stdout, c.Stderr = &out, &out
	err := p.start(c)
	if err == nil {
		err = c.Wait()
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

// startWait is how long the daemon may take to answer.
const startWait = 30 * time.Second

// watch starts the daemon, and waits until it answers.
func (p *product) watch(ctx context.Context) error {
	p.daemon, p.over = exec.Command(p.program, "daemon", "--json", "--state", p.state(), "--run", filepath.Join(p.dir, "run")), make(chan struct{})
	p.daemon.Stderr = &p.stderr
	out, err := p.daemon.StdoutPipe()
	if err == nil {
		err = p.start(p.daemon)
	}
	if err != nil {
		return fmt.Errorf("floodwall daemon: %w", err)
	}
	go func() {
		p.follow(out)
		p.err = p.daemon.Wait()
		close(p.over)
	}()
	for late := time.Now().Add(startWait); ; wait(ctx, 20*time.Millisecond) {
		var health struct{}
		if err = p.get(ctx, "/v1/health", &health); err == nil {
			return nil
		}
		select {
		case <-p.over:
			return p.complaint()
		default:
		}
		if ctx.Err() != nil || time.Now().After(late) {
			return errors.Join(ctx.Err(), fmt.Errorf("floodwall daemon: it does not answer: %w", err))
		}
	}
}

// complaint is why the daemon ended.
func (p *product) complaint() error {
	lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
	return fmt.Errorf("floodwall daemon: ended: %w: %s", errors.Join(p.err), lines[len(lines)-1])
}

// follow takes events until the daemon ends.
func (p *product) follow(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e := detectEvent{at: time.Now()}
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // it is no event
		}
		p.mu.Lock()
		p.events = append(p.events, e)
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, out)
}

// told are the events of a kind so far.
func (p *product) told(kind string) (list []detectEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.events), func(e detectEvent) bool { return e.Kind != kind })
}

// get asks the daemon.
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

// endWait is how long the daemon may take to end.
const endWait = 20 * time.Second

// stop ends the daemon, which writes what it knows.
func (p *product) stop() error {
	if p.daemon == nil || p.daemon.Process == nil {
		return nil
	}
	_ = p.daemon.Process.Signal(unix.SIGTERM) // or it has ended
	select {
	case <-p.over:
	case <-time.After(endWait):
		_ = p.daemon.Process.Kill() // or it has just ended
		<-p.over
		return fmt.Errorf("floodwall daemon: it does not end within %v", endWait)
	}
	p.daemon = nil
	if p.err != nil {
		return p.complaint()
	}
	return nil
}

// close ends the daemon, and the host's mounts.
func (p *product) close() error {
	err := p.stop()
	close(p.orders)
	p.ended.Wait()
	return err
}

// used is what the daemon has used of the machine.
type used struct {
	cpu    time.Duration
	memory int64 // the most so far, in bytes
}

// clockTick is the unit of times in /proc/PID/stat on all architectures that Linux has Go for (sysconf(3), _SC_CLK_TCK).
const clockTick = time.Second / 100

// used reads it (proc(5), /proc/PID/stat and status).
func (p *product) used() (u used, err error) {
	dir := fmt.Sprintf("/proc/%d/", p.daemon.Process.Pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return u, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return u, fmt.Errorf("%sstat: %d fields", dir, len(fields))
	}
	for _, f := range fields[11:13] { // user and system time
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, fmt.Errorf("%sstat: %w", dir, err)
		}
		u.cpu += time.Duration(ticks) * clockTick
	}
	status, err := os.ReadFile(dir + "status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kB int64
			_, err = fmt.Sscan(rest, &kB)
			u.memory = kB << 10
		}
	}
	return u, err
}
