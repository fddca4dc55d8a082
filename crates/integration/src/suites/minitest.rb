# Runs test files with minitest, and writes a report in JUnit XML.
# Arguments: the report, then the files.

require "bundler/setup"
require "minitest"

# Writes each test when it ends: what ran before a crash is in the report.
class Report < Minitest::AbstractReporter
  def initialize(path)
    super()
    @file = File.open(path, "w")
    @file.sync = true
  end

  def record(result)
    head = "<testcase classname=#{attribute(result.klass)} name=#{attribute(result.name)}"
    failure = result.failures.first
    return @file.puts("#{head} />") unless failure

    tag = result.skipped? ? "skipped" : "failure"
    @file.puts("#{head}><#{tag} message=#{attribute(failure.message)}></#{tag}></testcase>")
  end

  private

  def attribute(text)
    text.encode("UTF-8", invalid: :replace, undef: :replace).scrub.encode(xml: :attr)
  end
end

REPORT, *FILES = ARGV

module Minitest
  def self.plugin_report_init(_options)
    reporter << Report.new(REPORT)
  end
end

# The same order in every run, as some tests use one server one after the other.
ARGV.replace(["--seed", "1"])
FILES.each { |file| require File.expand_path(file) }
# Not before: minitest looks for plugins only while it has none.
Minitest.extensions << "report"
