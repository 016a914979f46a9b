package kubewright

// The process of a cluster: how it is found, started, listened to and ended.
//
// It never outlives this process. A signal that asks the kernel to do that (Pdeathsig) exists on Linux alone, and is
// bound to a thread; so a shell watches a pipe whose other end is here, and which the kernel closes however this
// process ends. Where there is no /bin/sh, Start fails and says so.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// launcher becomes the program, and leaves a watcher behind that ends it when the pipe on standard input closes without
// a word. The program keeps the number of the shell; the watcher holds nothing else that somebody could wait for.
const launcher = `exec 3<&0
{ read -r _ <&3 || kill -TERM $$; } >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null`

// tailSize is how much of what the program says is kept for error messages.
const tailSize = 16 << 10

func findProgram(named string) (string, error) {
	from := "the field Program"
	if named == "" {
		named, from = os.Getenv("KUBEWRIGHT"), "the environment variable KUBEWRIGHT"
	}
	if named == "" {
		named, from = "kubewright", ""
	}
	path, err := exec.LookPath(named)
	if err == nil {
		return path, nil
	}
	if from == "" {
		return "", errors.New("kubewright: there is no program `kubewright` on the PATH: " +
			"install it, or let the environment variable KUBEWRIGHT name it")
	}
	return "", fmt.Errorf("kubewright: %s names a program that cannot be run: %w", from, err)
}

type process struct {
	command *exec.Cmd
	// leash is the end of the pipe that the watcher waits for.
	leash *os.File
	said  *firstLine
	log   *tail
	// ended is closed when the process is gone; err is why.
	ended chan struct{}
	err   error
}

func startProcess(program string, arguments, environment []string, log io.Writer) (*process, error) {
	cannot := func(err error) error { return fmt.Errorf("kubewright: cannot start %s: %w", program, err) }
	held, leash, err := os.Pipe()
	if err != nil {
		return nil, cannot(err)
	}
	defer held.Close()
	p := &process{
		command: exec.Command("/bin/sh", append([]string{"-c", launcher, "sh", program}, arguments...)...),
		leash:   leash,
		said:    &firstLine{line: make(chan string, 1)},
		log:     &tail{to: log},
		ended:   make(chan struct{}),
	}
	p.command.Stdin, p.command.Stdout, p.command.Stderr = held, p.said, p.log
	p.command.Env = append(os.Environ(), environment...)
	// A Ctrl-C is for the tests, which may still need the cluster to clean up.
	p.command.SysProcAttr = ownGroup()
	// Should a writer of the log be stuck, the end is noticed all the same.
	p.command.WaitDelay = 5 * time.Second
	if err := p.command.Start(); err != nil {
		leash.Close()
		return nil, cannot(err)
	}
	go func() {
		p.err = p.command.Wait()
		// A word, and not the bare end of the pipe: by now the number may be another process's.
		_, _ = p.leash.WriteString("\n")
		p.leash.Close()
		close(p.ended)
	}()
	return p, nil
}

// ready waits until the cluster answers, and returns the path of its kubeconfig.
func (p *process) ready(ctx context.Context) (string, error) {
	var line string
	select {
	case line = <-p.said.line:
	case <-p.ended:
		// Another program may say something and end.
		select {
		case line = <-p.said.line:
		default:
			return "", p.gone("before it was ready")
		}
	case <-ctx.Done():
		return "", fmt.Errorf("kubewright: the cluster did not start: %w%s", context.Cause(ctx), p.log.words())
	}
	var event struct{ Event, Kubeconfig string }
	if err := json.Unmarshal([]byte(line), &event); err != nil || event.Event != "ready" || event.Kubeconfig == "" {
		return "", fmt.Errorf("kubewright: %s said %q instead of being ready; is it kubewright?%s",
			p.command.Args[4], line, p.log.words())
	}
	return event.Kubeconfig, nil
}

func (p *process) stop(patience time.Duration) error {
	if err := p.command.Process.Signal(stopSignal); errors.Is(err, os.ErrProcessDone) {
		<-p.ended
		return p.gone("before it was stopped")
	}
	select {
	case <-p.ended:
		if p.err != nil {
			return p.gone("badly when it was stopped")
		}
		return nil
	case <-time.After(patience):
	}
	_ = p.command.Process.Kill()
	<-p.ended
	return fmt.Errorf("kubewright: the cluster did not stop within %v and was killed%s", patience, p.log.words())
}

// gone says that the process ended when it should not have. Only for a process that has ended.
func (p *process) gone(when string) error {
	return fmt.Errorf("kubewright: the cluster ended %s (%v)%s", when, p.command.ProcessState, p.log.words())
}

// firstLine takes the first line of what is written to it, and drops the rest.
type firstLine struct {
	line  chan string
	begun []byte
	done  bool
}

func (f *firstLine) Write(data []byte) (int, error) {
	if !f.done {
		f.begun = append(f.begun, data...)
		if line, _, whole := bytes.Cut(f.begun, []byte("\n")); whole || len(f.begun) > tailSize {
			f.line <- string(line)
			f.done, f.begun = true, nil
		}
	}
	return len(data), nil
}

// tail hands on what is written to it, and keeps the end.
type tail struct {
	to   io.Writer
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, data...)
	t.kept = t.kept[max(0, len(t.kept)-tailSize):]
	t.mu.Unlock()
	if t.to != nil {
		// A log that cannot be written is no reason to stop the cluster.
		_, _ = t.to.Write(data)
	}
	return len(data), nil
}

// words is what the program said, to be appended to an error: its errors in words, other lines as they are.
func (t *tail) words() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var words strings.Builder
	for line := range strings.Lines(strings.TrimSpace(string(t.kept))) {
		line = strings.TrimSpace(line)
		var event struct {
			Event, Error, Fix string
			Because           []string
		}
		if json.Unmarshal([]byte(line), &event) == nil && event.Event == "error" {
			line = strings.Join(append([]string{event.Error}, event.Because...), ": ")
			if event.Fix != "" {
				line += " (" + event.Fix + ")"
			}
		}
		if line != "" {
			words.WriteString("\n\t" + line)
		}
	}
	return words.String()
}
