// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/floodwall/floodwall/test/testutil"
)

// serveFar starts the servers that uses need, in the calling thread's network namespace.
func serveFar(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 3_000_000)) })
	mux.HandleFunc("/take", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, n)
	})
	mux.HandleFunc("/debian/Packages", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "Package: floodwall-test\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.com>\nFilename: ./x.deb\nSize: 1\nDescription: x\n")
	})
	web := listen(t, ":80")
	go http.Serve(web, mux)

	name := func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		for i := range 16 {
			a.Answer = append(a.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{strings.Repeat(string(rune('a'+i)), 220)}})
		}
		w.WriteMsg(a)
	}
	packets, err := net.ListenPacket("udp", ":53")
	if err != nil {
		t.Error(err)
		return
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: dns.HandlerFunc(name)}, {Listener: listen(t, ":53"), Handler: dns.HandlerFunc(name)}} {
		go s.ActivateAndServe()
		t.Cleanup(func() { s.Shutdown() })
	}
	serveTime(t)
	testutil.Serve(t, listen(t, ":25"), serveMail)
	passive := listen(t, ":0")
	testutil.Serve(t, listen(t, ":21"), func(c net.Conn) { serveFile(c, passive) })

	dir := t.TempDir()
	script(t, fmt.Sprintf(`cd %s; export HOME=%[1]s GIT_CONFIG_GLOBAL=/dev/null
git init -q project; cd project; echo content >file; git add file; git -c user.name=x -c user.email=x@example.com commit -qm x
dropbearkey -t ed25519 -f ../key >/dev/null 2>&1`, dir))
	for _, command := range [][]string{
		{"git", "daemon", "--export-all", "--reuseaddr", "--base-path=" + dir},
		{"dropbear", "-F", "-E", "-r", filepath.Join(dir, "key"), "-p", "22"},
	} {
		c := exec.Command(command[0], command[1:]...)
		if err := c.Start(); err != nil {
			t.Error(err)
			continue
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	}
	for _, port := range []string{"9418", "22"} {
		script(t, "for i in $(seq 600); do ! ss -Hltn sport = :"+port+" | grep -q . || exit 0; sleep 0.05; done; exit 1")
	}
}

func listen(t *testing.T, address string) net.Listener {
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// serveTime starts an NTP server (RFC 5905, 7.3).
func serveTime(t *testing.T) {
	c, err := net.ListenPacket("udp", ":123")
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for {
			q := make([]byte, 48)
			n, from, err := c.ReadFrom(q)
			if err != nil {
				return
			}
			if n < len(q) {
				continue
			}
			const since1900 = 2_208_988_800
			a := make([]byte, 48)
			a[0], a[1], a[2], a[3] = 4<<3|4, 1, q[2], 0xec // version 4, a server, of stratum 1
			copy(a[12:], "GPS\x00")
			copy(a[24:32], q[40:48])
			now := time.Now()
			for _, at := range []int{16, 32, 40} {
				binary.BigEndian.PutUint32(a[at:], uint32(now.Unix()+since1900))
			}
			c.WriteTo(a, from)
		}
	}()
}

// timeDialogue requests the time from an NTP server.
func timeDialogue(c net.Conn) error {
	q := make([]byte, 48)
	q[0] = 4<<3 | 3 // version 4, a client
	if _, err := c.Write(q); err != nil {
		return err
	}
	n, err := c.Read(q)
	if err == nil && (n != len(q) || q[0]&7 != 4) {
		err = fmt.Errorf("an answer of %d bytes, mode %d", n, q[0]&7)
	}
	return err
}

// keyDialogue starts a key exchange with an SSH server (RFC 4253, 4.2 and 7.1).
func keyDialogue(c net.Conn) error {
	const keyInit = 20
	fmt.Fprint(c, "SSH-2.0-test\r\n")
	r := bufio.NewReader(c)
	banner, err := r.ReadString('\n')
	if err != nil || !strings.HasPrefix(banner, "SSH-2.0-") {
		return fmt.Errorf("%q: %w", banner, err)
	}
	packet := make([]byte, 6)
	if _, err := io.ReadFull(r, packet); err != nil || packet[5] != keyInit {
		return fmt.Errorf("%x in place of a key exchange: %w", packet, err)
	}
	return nil
}

// serveMail acts as an SMTP server for a client that sends one mail.
func serveMail(c net.Conn) {
	fmt.Fprint(c, "220 far.example\r\n")
	for r := bufio.NewScanner(c); r.Scan(); {
		switch word, _, _ := strings.Cut(strings.ToUpper(r.Text()), " "); word {
		case "DATA":
			fmt.Fprint(c, "354 go on\r\n")
			for r.Scan() && r.Text() != "." {
			}
			fmt.Fprint(c, "250 taken\r\n")
		case "QUIT":
			fmt.Fprint(c, "221 bye\r\n")
			return
		default:
			fmt.Fprint(c, "250 ok\r\n")
		}
	}
}

// mailDialogue sends a mail.
func mailDialogue(c net.Conn) error {
	s, err := smtp.NewClient(c, "far.example")
	if err != nil {
		return err
	}
	err = errors.Join(s.Mail("a@example.com"), s.Rcpt("b@example.com"))
	w, dataErr := s.Data()
	if err = errors.Join(err, dataErr); err != nil {
		return err
	}
	fmt.Fprint(w, "Subject: test\r\n\r\ntext\r\n")
	return errors.Join(w.Close(), s.Quit())
}

// serveFile acts as an FTP server that sends one file over a passive connection (RFC 959, RFC 2428).
func serveFile(c net.Conn, passive net.Listener) {
	fmt.Fprint(c, "220 far\r\n")
	for r := bufio.NewScanner(c); r.Scan(); {
		switch word, _, _ := strings.Cut(strings.ToUpper(r.Text()), " "); word {
		case "USER":
			fmt.Fprint(c, "331 password\r\n")
		case "PASS":
			fmt.Fprint(c, "230 in\r\n")
		case "EPSV", "PASV":
			port := passive.Addr().(*net.TCPAddr).Port
			if word == "EPSV" {
				fmt.Fprintf(c, "229 passive (|||%d|)\r\n", port)
			} else {
				fmt.Fprintf(c, "227 passive (198,51,100,7,%d,%d)\r\n", port>>8, port&255)
			}
		case "SIZE":
			fmt.Fprint(c, "213 8\r\n")
		case "RETR":
			fmt.Fprint(c, "150 it comes\r\n")
			if d, err := passive.Accept(); err == nil {
				io.WriteString(d, "content\n")
				d.Close()
			}
			fmt.Fprint(c, "226 done\r\n")
		case "QUIT":
			fmt.Fprint(c, "221 bye\r\n")
			return
		default:
			fmt.Fprint(c, "200 ok\r\n")
		}
	}
}
