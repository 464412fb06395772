# frozen_string_literal: true

# run_active_record.rb SOURCES PARTS [TEST...]: runs Active Record's tests in PARTS processes, and writes down
# how each ended: a line of JSON for each, and one when all processes have come to their end. A TEST is a file
# or directory below test/cases, or CLASS#METHOD.
#
# With VARVE_APP_ENGINE, the name of the engine takes InnoDB's place in what is sent to the server: in
# ENGINE=, and in the timeout for locks. A table with a full-text index stays InnoDB's: without it there would
# be no tables for any test.

require "fileutils"
require "json"

CASES = File.join(ARGV.shift, "test/cases")
PARTS = Integer(ARGV.shift)
METHODS, PATHS = ARGV.partition { |test| test.include?("#") }

def write_down(line)
  File.open(ENV.fetch("VARVE_APP_RESULTS"), "a") { |file| file.write("#{line.to_json}\n") }
end

# Those of this adapter name its database: they go to the process that has none but that.
def files
  all = Dir.glob("#{CASES}/**/*_test.rb").sort
  all.select! { |file| PATHS.any? { |path| file.start_with?(File.join(CASES, path)) } } if PATHS.any?
  ours, general = all.partition { |file| file.include?("/adapters/") }
  ours.select! { |file| file.include?("/adapters/mysql2/") }
  parts = Array.new(PARTS) { |part| general.select.with_index { |_, index| index % PARTS == part } }
  parts[0] += ours
  parts
end

module NamedEngine
  NAME = ENV["VARVE_APP_ENGINE"]

  def query(sql, *options)
    named = sql.b.gsub(/(\bengine\s*=\s*)innodb\b/in, "\\1#{NAME}")
    named.gsub!(/\binnodb_lock_wait_timeout\b/in, "#{NAME.downcase}_lock_wait_timeout")
    named << " ENGINE=InnoDB" if named.match?(/\A\s*CREATE TABLE .*\bFULLTEXT\b/imn)
    super(named.force_encoding(sql.encoding), *options)
  end
end

# A few want other parts of Rails.
def load_tests(file)
  require file
rescue LoadError => error
  write_down(test: file.delete_prefix("#{CASES}/"), outcome: "skipped", why: error.message)
end

def run_part(part, files)
  ENV["VARVE_APP_PART"] = part.zero? ? "" : "_#{part}"
  # Some make files below.
  FileUtils.mkdir_p("part-#{part}/test")
  Dir.chdir("part-#{part}")
  $LOAD_PATH.unshift(File.dirname(CASES))
  require "minitest"
  require "mysql2"
  Mysql2::Client.prepend(NamedEngine) if NamedEngine::NAME
  # Its helper asks for all tests to run when the process ends.
  Minitest.singleton_class.define_method(:autorun) { }
  files.each { |file| load_tests(file) }
  only = METHODS.map { |name| Regexp.escape(name) }.join("|")
  Minitest.extensions << "outcomes"
  Minitest.run(["--seed", "1", *(["--name", "/\\A(#{only})\\z/"] if METHODS.any?)])
end

# How each test ended, as Minitest tells its reporters.
class Outcomes
  def start; end
  def prerecord(_class, _name); end
  def report; end

  def passed?
    true
  end

  def record(result)
    outcome = if result.skipped? then "skipped" else result.passed? ? "passed" : "failed" end
    why = result.failures.map(&:message).join("\n").scrub
    write_down(test: "#{result.klass}##{result.name}", outcome: outcome, why: why)
  end
end

module Minitest
  def self.plugin_outcomes_init(_options)
    reporter << Outcomes.new
  end
end

pids = files.map.with_index { |of_part, part| fork { exit!(run_part(part, of_part) ? 0 : 1) } }
ended = pids.map { |pid| Process.wait2(pid).last.exitstatus }
# A process that failed otherwise has left tests out.
write_down(end: true) if ended.all? { |status| status && status < 2 }
